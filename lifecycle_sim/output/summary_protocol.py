"""The facts of ``lifecycle-sim protocol`` as records."""

from __future__ import annotations

from lifecycle_sim.output.summary import Record
from lifecycle_sim.study.budget.fit import CHECK_LEVEL, LEVEL, Fit, Forecast, Interval
from lifecycle_sim.study.budget.protocol import Protocol


def protocol_document(source: str, protocol: Protocol) -> Record:
    """Return the versioned document that ``protocol`` answers with."""
    return {
        "schema": "lifecycle-sim/protocol/1",
        "source": {"name": source, "title": protocol.title},
        "sound": protocol.sound,
        "answered": protocol.answered,
        "budget": {"work": protocol.work, "tolerance": protocol.tolerance, "definition": protocol.definition},
        "quality": {"measure": protocol.measure, "better": protocol.better},
        "runs": [
            {
                "name": pair.name,
                "parameters": pair.parameters,
                "tokens": pair.tokens,
                "work": pair.work,
                "deviation": _short(pair.deviation),
            }
            for pair in protocol.pairs
        ],
        "requirements": [{"name": each.name, "met": each.met, "text": each.text} for each in protocol.requirements],
        "fit": None if protocol.fit is None else _fit(protocol.fit),
        "unfitted": protocol.unfitted,
        "forecasts": [_forecast(each) for each in protocol.forecasts],
    }


def _short(value: float) -> float:
    """*value* to nine digits: what lies behind differs from one machine to the next."""
    return float(f"{value:.9g}")


def _interval(interval: Interval) -> Record:
    return {"value": _short(interval.value), "low": _short(interval.low), "high": _short(interval.high)}


def _fit(fit: Fit) -> Record:
    check = fit.check
    return {
        "count": len(fit.runs),
        "level": LEVEL,
        "constants": [{"name": name, **_interval(each)} for name, each in fit.intervals.items()],
        "residual": _short(fit.residual),
        "fitted": {what: list(fit.range_of(what)) for what in ("parameters", "tokens", "work")},
        "scale_check": None
        if check is None
        else {
            "passed": check.passed,
            "level": CHECK_LEVEL,
            "fitted": check.fitted,
            "most_work": check.most_fitted,
            "worst": _short(check.worst),
            "held_out": [
                {"parameters": run.parameters, "tokens": run.tokens, "work": run.work, "loss": run.loss, "predicted": _interval(each)}
                for run, each in check.held
            ],
        },
    }


def _forecast(forecast: Forecast) -> Record:
    return {
        "parameters": forecast.parameters,
        "tokens": forecast.tokens,
        "interval": None if forecast.interval is None else _interval(forecast.interval),
        "beyond": _short(forecast.beyond),
        "text": forecast.text,
    }
