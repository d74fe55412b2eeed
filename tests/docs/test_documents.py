"""What the documents say is so: every example runs, every link leads somewhere."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme

from shardmq.cmd.run.locks import hold_port
from tests.conftest import StartBroker
from tests.docs.document import ROOT, RUN, SHOWN, Block, Document, documents
from tests.docs.runner import Runner

DOCUMENTS = documents()
PLACES = ("README.md", "docs/")
"""Where examples are run. Other pages are for those who develop, or for root on their own machines."""

NOT_RUN_MAX = 12
RABBITMQ = ROOT / "tests/data/rabbitmq-3.10-definitions.json"
PAGES = [document for document in DOCUMENTS if document.name.startswith(PLACES)]
EXAMPLES = [document for document in PAGES if not document.needs_spark]
ALONE = [
    (document, block)
    for document in EXAMPLES
    for block in document.blocks
    if block.runs and (not document.is_in_order or document.name == "README.md")
]
IN_ORDER = [
    document for document in EXAMPLES if document.is_in_order and not any(block.tool for block in document.blocks)
]
"""Pages whose examples are all run here; tests/spark/test_documents.py runs those with Spark's among them."""


def given(document: Document, folder: Path) -> None:
    """Put the files that a page's examples find into their folder."""
    for name in document.given:
        if name == "certificates":
            authority = trustme.CA()
            authority.cert_pem.write_to_path(folder / "authority.pem")
            for who, of in (("server", "localhost"), ("client", "a@client")):
                certificate = authority.issue_cert(of)
                certificate.cert_chain_pems[0].write_to_path(folder / f"{who}.pem")
                certificate.private_key_pem.write_to_path(folder / f"{who}.key")
        else:
            assert name == "rabbitmq-definitions.json", f"{document.name}: nobody knows what '{name}' is"
            shutil.copy(RABBITMQ, folder / name)


RunnerOf = Callable[[Document], Runner]


@pytest.fixture
def runner_of(start_broker: StartBroker, tmp_path: Path) -> RunnerOf:
    """Makes what runs the examples of a page, on a fresh broker, with TLS where the page has certificates."""
    return lambda document: prepared(document, start_broker, tmp_path)


def prepared(document: Document, start_broker: StartBroker, tmp_path: Path) -> Runner:
    """A fresh broker and a folder with what a page's examples find."""
    folder = tmp_path / "examples"
    folder.mkdir()
    given(document, folder)
    if "certificates" not in document.given:
        return Runner(start_broker(), folder)
    with hold_port("127.0.0.1", 0) as free:
        port = str(free)
    options = ["--tls-port", port, "--tls-verify"]
    for option, file in (("--tls-cert", "server.pem"), ("--tls-key", "server.key"), ("--tls-ca", "authority.pem")):
        options += [option, str(folder / file)]
    return Runner(start_broker(options=options), folder, {":5671": f":{port}"})


@pytest.mark.parametrize(
    ("document", "block"), [pytest.param(*pair, id=f"{pair[0].name}:{pair[1].line}") for pair in ALONE]
)
def test_an_example_runs_alone_on_a_fresh_broker(document: Document, block: Block, runner_of: RunnerOf) -> None:
    runner_of(document).run(block)


@pytest.mark.parametrize("document", [pytest.param(document, id=document.name) for document in IN_ORDER])
def test_the_examples_of_a_page_run_in_order(document: Document, runner_of: RunnerOf) -> None:
    runner = runner_of(document)
    for block in document.blocks:
        if block.runs:
            runner.run(block)


@pytest.mark.parametrize("document", [pytest.param(document, id=document.name) for document in PAGES])
def test_every_block_says_what_it_is(document: Document) -> None:
    assert document.text.count("\n```") + document.text.startswith("```") == 2 * len(document.blocks)
    assert {block.language for block in document.blocks if not block.tool} <= {*RUN, *SHOWN}


def test_few_examples_are_not_run() -> None:
    spared = [f"{document.name}:{block.line}" for document in PAGES for block in document.blocks if block.reason]
    assert len(spared) <= NOT_RUN_MAX, spared


@pytest.mark.parametrize("document", [pytest.param(document, id=document.name) for document in DOCUMENTS])
def test_links_lead_somewhere(document: Document) -> None:
    for link in document.links():
        parts = urlsplit(link)
        if parts.scheme:
            assert parts.scheme in ("http", "https"), link
            assert re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+(:\d+)?", parts.netloc), link
            continue
        target = (document.path.parent / parts.path).resolve() if parts.path else document.path
        assert target.exists(), f"{document.name} links to {link}"
        if parts.fragment:
            assert target.suffix == ".md", link
            assert parts.fragment in Document(target).anchors(), f"{document.name} links to {link}"


def test_every_page_is_reached_from_the_first() -> None:
    reached, ahead = set(), {ROOT / "README.md"}
    while ahead:
        path = ahead.pop()
        reached.add(path)
        for link in Document(path).links():
            target = (path.parent / link.partition("#")[0]).resolve()
            if not urlsplit(link).scheme and target.suffix == ".md" and target.is_file() and target not in reached:
                ahead.add(target)
    assert {document.name for document in DOCUMENTS if document.path not in reached} == set()
