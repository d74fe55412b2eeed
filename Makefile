# `make up` and `make test` are all that a fresh machine needs: git, make and python3 (3.11 or newer).

# Distributions compile Python with the profile of a run, by which a message takes the broker a tenth less than with one that
# pyenv has compiled. Who is in an environment of their own has chosen.
SYSTEM := /usr/bin/python3
CHOSEN := $(VIRTUAL_ENV)$(CONDA_PREFIX)$(PYENV_VERSION)
IS_FIT := import ensurepip, sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(if $(CHOSEN),python3,$(shell $(SYSTEM) -c '$(IS_FIT)' 2>/dev/null && echo $(SYSTEM) || echo python3))
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
IS_TREE := import shardmq, os, sys; sys.exit(not os.path.samefile(shardmq.__path__[0], "shardmq"))
ARGS   ?=
COMMA  := ,
KILLS  ?= 100
POINTS ?= 40
FREEZES ?= 24
SWAPS  ?= 10000
FLIPS  ?= 200
FUZZ   ?= 60
SEEDS  ?= 1000000
FAULTS ?= 1000

.DEFAULT_GOAL := help
.PHONY: help up tree test ready compiled lint demo bench bench-compare bench-growth bench-hosts bench-spark bench-scaling measure figures recording pictures manifests faults hosts-faults fuzz simulate clean

help:
	@echo "make up      start a broker with 4 shards in the foreground (ARGS='--port 5673' for more options)"
	@echo "make test    lint, check types, run all tests"
	@echo "make demo    336,776 flights through queues, groups and Spark, with kills on the way"
	@echo "make bench   measure the broker that runs (ARGS='--url …')"
	@echo "make bench-compare  shardmq and RabbitMQ side by side, by the same AMQP clients; installs neither"
	@echo "make bench-growth  what a message costs as queues, connections and a backlog grow"
	@echo "make bench-hosts  three hosts on this machine, and RabbitMQ's quorum queues on three more; needs root, etcd"
	@echo "make bench-spark  2,000,000 rows from Spark, exactly once; RabbitMQ beside it where it is installed"
	@echo "make bench-scaling  what more gateways, shards, queues and copies take of a core; etcd where it is installed"
	@echo "make measure  every figure of the documents anew, in one run of 70 minutes; then make figures"
	@echo "make figures  tables and plots of the documents, from docs/benchmarks/results"
	@echo "make recording  the terminal that the README shows, from a real run"
	@echo "make pictures  the management page in docs/operations/pictures, taken by its tests in Chromium"
	@echo "make manifests  deploy/hosts/kubernetes.yaml, from the Helm chart beside it"
	@echo "make faults  $(KILLS) kills, $(FREEZES) freezes, $(POINTS) power losses, $(FLIPS) flipped bits, $(SWAPS) swaps in etcd; and controls that must fail"
	@echo "make hosts-faults  $(FAULTS) faults on three hosts in network namespaces, under load; SEED=n repeats those of a run"
	@echo "make fuzz    $(FUZZ) seconds of bytes that no AMQP client should send, then sessions of such"
	@echo "make simulate  a replica group in a simulated world, $(SEEDS) times; SEED=n tells one of them step by step"
	@echo "make lint    ruff and mypy alone"
	@echo "make clean   remove what make has made; data directories stay"

# What is compiled once is compiled for all processes of a test run.
unexport PYTHONDONTWRITEBYTECODE

# Stamps: an install is repeated when pyproject.toml has changed since.

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "shardmq needs Python 3.11 or newer; set PYTHON=…")'
	@echo "making $(VENV) …"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml | $(BIN)/python
	@echo "installing shardmq …"
	@$(PIP) --editable .
	@touch $@

# Spark takes part where it can run.
DEMO := demo$(if $(JAVA_HOME)$(shell command -v java),$(COMMA)spark)
$(VENV)/installed-demo: $(VENV)/installed
	@echo "installing what the demo needs$(if $(findstring spark,$(DEMO)), (with Spark: 460 MB)) …"
	@$(PIP) --editable '.[$(DEMO)]'
	@touch $@

# What Python brings is often a pip of years ago, which takes twice the processor time for packages as many as the tests'.
$(VENV)/newest-pip: | $(BIN)/python
	@$(PIP) --upgrade pip
	@touch $@

# All at once, and Python compiles what the tests use: pip would compile twice as much, on one core.
$(VENV)/installed-test: pyproject.toml | $(VENV)/newest-pip
	@echo "installing shardmq and what the tests need …"
	@$(PIP) --no-compile --editable '.[test]'
	@touch $(VENV)/installed $(VENV)/installed-demo $@

# Clients of other languages; fetched again when the Python ones may be of other versions. Most can come before those.
$(VENV)/fetched-peers: tests/amqp/peers.py | $(VENV)/newest-pip
	@echo "fetching AMQP clients …"
	@$(BIN)/python tests/amqp/peers.py $(VENV)/peers
	@touch $@

$(VENV)/installed-peers: tests/amqp/peers.py $(VENV)/installed-test | $(VENV)/fetched-peers
	@$(BIN)/python tests/amqp/peers.py $(VENV)/peers $@

$(VENV)/installed-fuzz: $(VENV)/installed-test
	@echo "installing what finds the bytes …"
	@$(PIP) --editable '.[test,fuzz]'
	@touch $@

$(VENV)/installed-spark: $(VENV)/installed
	@echo "installing Spark (460 MB) and what the comparison needs …"
	@$(PIP) --editable '.[spark,bench]'
	@touch $@

$(VENV)/installed-figures: $(VENV)/installed
	@echo "installing what draws the plots …"
	@$(PIP) --editable '.[figures]'
	@touch $@

# `pip install .` puts a copy in this tree's place, and the copy goes stale.
tree: $(VENV)/installed
	@$(BIN)/python -P -c '$(IS_TREE)' 2>/dev/null || { echo "$(VENV) has another shardmq than this tree; installing this one …"; \
		$(PIP) --no-deps --editable .; }

up: tree
	@exec $(BIN)/shardmq up --shards 4 $(ARGS)

demo: $(VENV)/installed-demo tree
	@$(BIN)/shardmq demo $(ARGS)

bench: tree
	$(BIN)/shardmq bench bulk --messages 3000000 --size 100 $(ARGS)
	$(BIN)/shardmq bench pipelined --messages 500000 --size 100 $(ARGS)
	$(BIN)/shardmq bench sync --messages 5000 --size 100 $(ARGS)
	$(BIN)/shardmq bench latency --messages 50000 --size 100 --rate 5000 $(ARGS)

bench-compare: tree
	@$(BIN)/shardmq bench compare $(ARGS)

bench-growth: tree
	@$(BIN)/shardmq bench growth $(ARGS)

bench-hosts: tree
	@$(BIN)/shardmq bench hosts $(ARGS)

bench-spark: $(VENV)/installed-spark tree
	$(BIN)/shardmq bench spark --rows 2000000 --size 100 $(ARGS)

measure: $(VENV)/installed-spark tree
	@$(BIN)/python docs/benchmarks/measure.py $(ARGS)

figures: $(VENV)/installed-figures tree
	@$(BIN)/python docs/benchmarks/figures.py

bench-scaling: $(VENV)/installed-spark tree
	@$(BIN)/shardmq bench scaling $(ARGS)

recording: tree
	@$(BIN)/python docs/recording/record.py

pictures: $(VENV)/installed-peers tree
	SHARDMQ_SCREENSHOTS=docs/operations/pictures $(BIN)/pytest -q tests/management/test_page.py

manifests: $(VENV)/installed-test tree
	@$(BIN)/python -m tests.deploy.charts

lint: $(VENV)/installed-test tree
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy

# With which some twenty JVMs of the tests start in half the time.
$(VENV)/spark-classes.jsa: tests/spark/archive.py $(VENV)/installed-test
	@$(BIN)/python tests/spark/archive.py $@ 2>$@.log || { cat $@.log; exit 1; }

# Compiles the tests, which each of the workers would do for itself; what does not compile is told by these.
compiled: $(VENV)/installed-test tree
	@$(BIN)/pytest --collect-only --quiet >/dev/null 2>&1 || true

ready: $(if $(findstring spark,$(DEMO)),$(VENV)/spark-classes.jsa) compiled lint $(VENV)/installed-peers

# Test workers for two cores: most of them wait for something. On a slow machine, which has both cores busy with fewer,
# eight take each other's time away: six are done as soon, and what they start is there in time.
SPEED := import time; began = time.process_time(); sum(i * i for i in range(3000000)); \
	print(8 if time.process_time() - began < 0.17 else 6)
WORKERS ?= $$($(BIN)/python -c '$(SPEED)')

# Two at a time: peers are fetched while pip installs, and then tests compiled while types are checked.
test:
	@$(MAKE) --no-print-directory --jobs=2 $(VENV)/fetched-peers $(VENV)/installed-test
	@$(MAKE) --no-print-directory --jobs=2 ready
	$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

faults: $(VENV)/installed-test tree
	SHARDMQ_FAULT_KILLS=$(KILLS) SHARDMQ_FAULT_POINTS=$(POINTS) SHARDMQ_FAULT_FREEZES=$(FREEZES) \
	SHARDMQ_FAULT_FLIPS=$(FLIPS) SHARDMQ_FAULT_SWAPS=$(SWAPS) $(BIN)/pytest -m faults -v -s $(ARGS)

hosts-faults: $(VENV)/installed-test tree
	@$(BIN)/python -m tests.hosts.faults --faults $(FAULTS) $(if $(SEED),--seed $(SEED)) $(ARGS)

fuzz: $(VENV)/installed-fuzz tree
	$(BIN)/python -m tests.fuzz.amqp --seconds $(FUZZ) --found .hypothesis/fuzz
	SHARDMQ_FUZZ_SESSIONS=2000 $(BIN)/pytest -v tests/gateway/amqp/test_fuzz_sessions.py

simulate: $(VENV)/installed-test tree
	@$(BIN)/python -m tests.replication.simulator $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
