"""A result for Nagios, Prometheus, machines and people."""

from collections.abc import Callable
from typing import Any, Final

from shardmq.cmd.check.result import Measure, Result


def _number(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _performance(measure: Measure) -> str:
    """'label'=value[unit];warning;critical, as the guidelines of the Monitoring Plugins have it."""
    text = f"{measure.name}={_number(measure.value)}{measure.unit}"
    if measure.limits is None:
        return text
    # A range is what is fine: "5:" is five and more. A bare number is the first that is not.
    end = ":" if measure.limits.is_least else ""
    return f"{text};{_number(measure.limits.warning)}{end};{_number(measure.limits.critical)}{end}"


def _nagios(result: Result) -> str:
    sentence = " ".join(result.text.replace("|", "/").split())  # a bar begins the performance data
    line = f"SHARDMQ {result.check.upper()} {result.status.name} - {sentence}"
    return f"{line} | {' '.join(map(_performance, result.measures))}" if result.measures else line


def _text(result: Result) -> str:
    return "\n".join(
        [f"{result.status.name.lower()}: {result.text}"]
        + [f"  {measure.name} {_number(measure.value)}{measure.unit}" for measure in result.measures]
    )


def _prometheus(result: Result) -> str:
    label = f'{{check="{result.check}"}}'
    lines = ["# TYPE shardmq_check_status gauge", f"shardmq_check_status{label} {int(result.status)}"]
    for measure in result.measures:
        name = f"shardmq_check_{measure.name}"
        lines += [f"# TYPE {name} gauge", f"{name}{label} {_number(measure.value)}"]
    return "\n".join(lines)


def _json(result: Result) -> str:
    import msgspec

    measures: list[dict[str, Any]] = [
        {
            "name": measure.name,
            "value": measure.value,
            "unit": measure.unit,
            "status": measure.status.name,
            "warning": measure.limits and measure.limits.warning,
            "critical": measure.limits and measure.limits.critical,
        }
        for measure in result.measures
    ]
    table = {"check": result.check, "status": result.status.name, "text": result.text, "measures": measures}
    return msgspec.json.encode(table).decode()


FORMATS: Final[dict[str, Callable[[Result], str]]] = {
    "nagios": _nagios,
    "json": _json,
    "prometheus": _prometheus,
    "text": _text,
}
"""By their names on the command line."""
