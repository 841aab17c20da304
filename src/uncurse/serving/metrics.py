"""What a service counts, in the Prometheus text format."""

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

from uncurse.scoring.result import Result
from uncurse.search.trace import Trace

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_SENTENCES: Final = (1, 2, 4, 8, 16, 32, 64, 128)


@final
class Metrics:
    """The metrics of one service; several services in a process do not share them."""

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
            "Sentences searched for, by the certificate of the result",
            ["certificate"],
            registry=self.registry,
        )
        self._late = Counter(
            "uncurse_late_sentences", "Sentences whose search was ended by a deadline", registry=self.registry
        )
        self._rows = Counter("uncurse_model_rows", "Prefixes the model was run on", registry=self.registry)
        self._steps = Histogram(
            "uncurse_step_seconds",
            "Seconds that a step of a search takes",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._batches = Histogram(
            "uncurse_step_sentences", "Sentences that share a step", buckets=_SENTENCES, registry=self.registry
        )

    def add_gauges(self, waiting: Callable[[], int], searching: Callable[[], int]) -> None:
        """Show how many sentences wait and how many are being searched for."""
        Gauge("uncurse_waiting_sentences", "Sentences in the queue", registry=self.registry).set_function(waiting)
        Gauge(
            "uncurse_searching_sentences", "Sentences that are being searched for", registry=self.registry
        ).set_function(searching)

    def observe_request(self, path: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def observe_step(self, sentences: int, seconds: float) -> None:
        """A search took a step with so many sentences."""
        self._batches.observe(sentences)
        self._steps.observe(seconds)

    def observe_end(self, found: Result | Trace, in_time: bool) -> None:
        """The search for a sentence has ended; a recorded one has no certificate of its own."""
        if isinstance(found, Result):
            self._sentences.labels(found.certificate.name).inc()
            self._rows.inc(found.model_rows)
        else:
            self._sentences.labels("RECORDED").inc()
            self._rows.inc(1 + int(found.live_counts[:-1].sum()))
        if not in_time:
            self._late.inc()

    def render(self) -> bytes:
        """Everything as text."""
        return generate_latest(self.registry)
