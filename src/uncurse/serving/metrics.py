"""What a service counts, in the format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    GC_COLLECTOR,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from uncurse.result import Result
from uncurse.trace import Trace

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_SENTENCES: Final = (1, 2, 4, 8, 16, 32, 64, 128)


@final
class Metrics:
    """Counters of their own, so that several services in a process do not share them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registry.register(GC_COLLECTOR)
        self._requests = Counter(
            "uncurse_requests", "Requests answered", ["path", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "uncurse_request_seconds",
            "Seconds from a request to its answer",
            ["path"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._sentences = Counter(
            "uncurse_sentences",
            "Sentences searched for, by what is proved of the result",
            ["certificate"],
            registry=self.registry,
        )
        self._late = Counter(
            "uncurse_late_sentences", "Sentences whose search a deadline has ended", registry=self.registry
        )
        self._rows = Counter("uncurse_model_rows", "Prefixes the model was run on", registry=self.registry)
        self._steps = Histogram(
            "uncurse_step_seconds", "Seconds of a step of a search", buckets=_SECONDS, registry=self.registry
        )
        self._batches = Histogram(
            "uncurse_step_sentences", "Sentences that share a step", buckets=_SENTENCES, registry=self.registry
        )

    def watch(self, waiting: Callable[[], int], searching: Callable[[], int]) -> None:
        """Show how many sentences wait and how many are searched for."""
        Gauge("uncurse_waiting_sentences", "Sentences that wait", registry=self.registry).set_function(waiting)
        Gauge(
            "uncurse_searching_sentences", "Sentences that are searched for", registry=self.registry
        ).set_function(searching)

    def answered(self, path: str, status: int, seconds: float) -> None:
        """A request has its answer."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def stepped(self, sentences: int, seconds: float) -> None:
        """A search took a step with so many sentences."""
        self._batches.observe(sentences)
        self._steps.observe(seconds)

    def ended(self, found: Result | Trace, in_time: bool) -> None:
        """The search for a sentence has ended; one that was recorded proves nothing by itself."""
        if isinstance(found, Result):
            self._sentences.labels(found.optimality.name).inc()
            self._rows.inc(found.rows)
        else:
            self._sentences.labels("RECORDED").inc()
            self._rows.inc(1 + int(found.live_counts[:-1].sum()))
        if not in_time:
            self._late.inc()

    def written(self) -> bytes:
        """All of it as text."""
        return generate_latest(self.registry)
