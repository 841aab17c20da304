"""The HTTP service."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from typing import Any, Final, final

from fastapi import Depends, FastAPI, Request
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, JSONResponse, Response

from uncurse.scoring.decoding import Decoding
from uncurse.scoring.registry import Entry, parameters_of
from uncurse.scoring.scores import SCORES
from uncurse.scoring.stopping import RULES
from uncurse.serving.batcher import Batcher
from uncurse.serving.errors import HANDLED, ClosedError, ProblemError, problem_of, problem_response
from uncurse.serving.hosts import HostPolicy
from uncurse.serving.jobs import Answer
from uncurse.serving.limits import ServiceLimits
from uncurse.serving.metrics import CONTENT_TYPE, Metrics
from uncurse.serving.middleware import RequestMiddleware
from uncurse.serving.openapi import openapi_schema
from uncurse.serving.page import ServicePage
from uncurse.serving.requests import ExplanationRequest, TranslationRequest
from uncurse.serving.responses import (
    ExplanationResponse,
    HealthResponse,
    LimitsInfo,
    MethodsResponse,
    TranslationsResponse,
)
from uncurse.translation.translator import Translator
from uncurse.version import VERSION

OPEN_PATHS: Final = frozenset({"/", "/health"})  # need no token: they tell nothing that is secret
KNOWN_FIELDS: Final = {
    "/translate": tuple(TranslationRequest.model_fields),
    "/explain": tuple(ExplanationRequest.model_fields),
}


@final
@dataclass(frozen=True)
class Service:
    """A translator, and what its clients are allowed."""

    translator: Translator
    name: str  # of the model, as users know it
    limits: ServiceLimits = field(default_factory=ServiceLimits)
    model_flags: str = ""  # how the command line is told to run the model in the same way
    token: str | None = None
    examples: tuple[str, ...] = ()  # sentences to try on the page
    cpu_threads: int = 1  # that compute
    hosts: HostPolicy | None = None  # None: requests for any host are answered, as behind a proxy that checks them

    def app(self) -> FastAPI:
        """The service as an ASGI application; its batcher starts and ends with it."""
        metrics = Metrics()
        batcher = Batcher(self.translator, self.limits, metrics, cpu_threads=self.cpu_threads)
        metrics.add_gauges(lambda: batcher.waiting, lambda: batcher.searching)

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[None]:
            batcher.start()
            yield
            await asyncio.to_thread(batcher.close)

        app = FastAPI(
            title="uncurse",
            version=VERSION,
            summary="Translations with certificates, and searches to look at.",
            lifespan=lifespan,
            docs_url=None,  # it would load its scripts from another site
            redoc_url=None,
            redirect_slashes=False,
        )
        _add_routes(app, self, batcher, metrics)
        for kind in HANDLED:
            app.add_exception_handler(kind, _problem_handler)
        app.openapi = lambda: openapi_schema(app, self.limits, self.token is not None)  # type: ignore[method-assign]
        app.add_middleware(
            RequestMiddleware,
            limits=self.limits,
            hosts=self.hosts,
            token=self.token,
            open_paths=OPEN_PATHS,
            metrics=metrics,
        )
        return app

    @property
    def defaults(self) -> Decoding:
        """The decoding of a request that says nothing about it."""
        beam_size = min(Decoding().beam_size, self.limits.beam_size)
        return Decoding(beam_size).with_score(knows_length=self.translator.predictor is not None)


async def _problem_handler(request: Request, error: Exception) -> Response:
    path = getattr(request.scope.get("route"), "path", "")
    return problem_response(problem_of(error, KNOWN_FIELDS.get(path, ())))


def _add_routes(app: FastAPI, service: Service, batcher: Batcher, metrics: Metrics) -> None:
    limits, name = service.limits, service.name
    page = ServicePage(
        name, service.model_flags, limits, service.defaults, service.examples, service.token is not None
    )

    @app.post("/translate", response_model=TranslationsResponse, dependencies=[Depends(require_json)])
    async def translate(request: Request, body: TranslationRequest) -> Response:
        """Translate sentences; those of all requests that decode in the same way are searched for together."""
        job = body.job(batcher.translator, limits)
        answers = await _unless_gone(request, batcher.submit(job, body.sentences, body.deadline))
        return JSONResponse({"model": name, "translations": answers})

    @app.post("/explain", response_model=ExplanationResponse, dependencies=[Depends(require_json)])
    async def explain(request: Request, body: ExplanationRequest) -> Response:
        """Search to the maximum length, and show what every score and stopping rule makes of it."""
        job = body.job(batcher.translator, limits)
        (answer,) = await _unless_gone(request, batcher.submit(job, [body.sentence], body.deadline))
        return JSONResponse(answer)

    @app.get("/methods", response_model=MethodsResponse)
    async def methods() -> Response:
        """The scores and stopping rules, the defaults, and what a request may ask for."""
        defaults = service.defaults
        return JSONResponse(
            {
                "model": name,
                "scores": [_method_info(entry) for entry in SCORES.values()],
                "rules": [_method_info(entry) for entry in RULES.values()],
                "defaults": {
                    "beam_size": defaults.beam_size,
                    "score": SCORES.spec(defaults.rescorer),
                    "stop": RULES.spec(defaults.stop),
                },
                "limits": _limits_info(limits),
            }
        )

    @app.get("/health", response_model=HealthResponse)
    async def health() -> Response:
        """Whether requests are taken and answered."""
        if not batcher.healthy:
            raise ClosedError
        queue = {"waiting": batcher.waiting, "searching": batcher.searching}
        return JSONResponse({"status": "ok", "version": VERSION, "model": name} | queue)

    @app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def prometheus_metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(metrics.render(), media_type=CONTENT_TYPE)

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def root() -> Response:
        """The page."""
        return HTMLResponse(page.content, headers={"Content-Security-Policy": page.policy})


async def require_json(request: Request) -> None:
    """Refuse other content types: a browser sends some of them to other origins without asking first."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ProblemError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body must be application/json")


async def _unless_gone(request: Request, submitted: Future[list[Answer]]) -> list[Answer]:
    """Wait for the answers; if the client disconnects, the search for its sentences is cancelled."""
    answers = asyncio.wrap_future(submitted)
    disconnect = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((answers, disconnect), return_when=asyncio.FIRST_COMPLETED)
        if not answers.done():
            raise ClientDisconnect
        return answers.result()
    finally:
        answers.cancel()
        disconnect.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _limits_info(limits: ServiceLimits) -> dict[str, float]:
    every = asdict(limits) | {"max_length": limits.max_length}
    return {name: every[name] for name in LimitsInfo.model_fields}  # the others do not concern a request


def _method_info(entry: Entry[Any]) -> dict[str, Any]:
    return {
        "name": entry.name,
        "formula": entry.formula,
        "source": entry.source,
        "parameters": [
            {
                "name": each.name,
                "meaning": declared.meaning,
                "range": declared.range,
                "default": None if each.default is dataclasses.MISSING else each.default,
                "required": each.default is dataclasses.MISSING,
            }
            for each, declared in parameters_of(entry.method)
        ],
    }
