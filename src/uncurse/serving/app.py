"""The service over HTTP."""

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

from uncurse.registry import Entry, parameters_of
from uncurse.rescoring import SCORES
from uncurse.serving.answering import Explanation, Health, Methods, Translations
from uncurse.serving.asking import ExplanationRequest, TranslationRequest
from uncurse.serving.faults import KNOWN, problem_of
from uncurse.serving.gate import Gate
from uncurse.serving.metrics import CONTENT_TYPE, Metrics
from uncurse.serving.openapi import described
from uncurse.serving.options import Limits
from uncurse.serving.orders import Answer
from uncurse.serving.page import Page
from uncurse.serving.problems import ProblemError, response
from uncurse.serving.worker import Closed, Worker
from uncurse.stopping import RULES
from uncurse.translator import Translator
from uncurse.version import VERSION

OPEN: Final = frozenset({"/", "/health"})  # what needs no token: there is nothing to read in it


@final
@dataclass(frozen=True)
class Service:
    """A translator with what is allowed to those who ask it."""

    translator: Translator
    name: str  # of the model, as users know it
    limits: Limits = field(default_factory=Limits)
    token: str | None = None
    examples: tuple[str, ...] = ()  # sentences to try on the page

    def app(self) -> FastAPI:
        """The service as an ASGI application, whose worker lives as long as it does."""
        metrics = Metrics()
        worker = Worker(self.translator, self.limits, metrics)
        metrics.watch(lambda: worker.waiting, lambda: worker.searching)

        @asynccontextmanager
        async def life(app: FastAPI) -> AsyncIterator[None]:
            worker.start()
            yield
            await asyncio.to_thread(worker.close)

        app = FastAPI(
            title="uncurse",
            version=VERSION,
            summary="Translations with certificates, and searches to look at.",
            lifespan=life,
            docs_url=None,  # it would fetch its parts from elsewhere
            redoc_url=None,
            redirect_slashes=False,
        )
        page = Page(self.name, self.limits, self.examples, self.token is not None)
        _routes(app, self, worker, metrics, page)
        for kind in KNOWN:
            app.add_exception_handler(kind, _told)
        app.openapi = lambda: described(app, self.limits, self.token is not None)  # type: ignore[method-assign]
        app.add_middleware(Gate, body=self.limits.body, token=self.token, open_paths=OPEN, metrics=metrics)
        return app


async def _told(request: Request, error: Exception) -> Response:
    return response(problem_of(error))


def _routes(app: FastAPI, service: Service, worker: Worker, metrics: Metrics, page: Page) -> None:
    limits, name = service.limits, service.name

    @app.post("/translate", response_model=Translations, dependencies=[Depends(json_only)])
    async def translate(request: Request, asked: TranslationRequest) -> Response:
        """Translate sentences; those of all requests that decode in the same way are searched for together."""
        order = asked.order(worker.translator, limits)
        found = await _unless_gone(request, worker.submit(order, asked.sentences, asked.deadline))
        return JSONResponse({"model": name, "translations": found})

    @app.post("/explain", response_model=Explanation, dependencies=[Depends(json_only)])
    async def explain(request: Request, asked: ExplanationRequest) -> Response:
        """Search for a sentence to the limit, and see what every score and stopping rule makes of it."""
        order = asked.order(worker.translator, limits)
        (found,) = await _unless_gone(request, worker.submit(order, [asked.sentence], asked.deadline))
        return JSONResponse(found)

    @app.get("/methods", response_model=Methods)
    async def methods() -> Response:
        """The scores and stopping rules there are, and what a request may ask for."""
        return JSONResponse(
            {
                "model": name,
                "scores": [_method(entry) for entry in SCORES],
                "stopping_rules": [_method(entry) for entry in RULES],
                "limits": allowed(limits),
            }
        )

    @app.get("/health", response_model=Health)
    async def health() -> Response:
        """Whether requests are taken and answered."""
        if not worker.healthy:
            raise Closed
        state = {"waiting": worker.waiting, "searching": worker.searching}
        return JSONResponse({"status": "ok", "version": VERSION, "model": name} | state)

    @app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def numbers() -> Response:
        """What was counted, for Prometheus."""
        return Response(metrics.written(), media_type=CONTENT_TYPE)

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def seen() -> Response:
        """The page."""
        return HTMLResponse(page.content, headers={"Content-Security-Policy": page.policy})


async def json_only(request: Request) -> None:
    """Refuse bodies of other kinds; browsers send some of them for pages of other origins without asking."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ProblemError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body must be application/json")


async def _unless_gone(request: Request, asked: Future[list[Answer]]) -> list[Answer]:
    """The answers; if whoever asked goes away, their sentences are not searched for any further."""
    answers = asyncio.wrap_future(asked)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((answers, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not answers.done():
            raise ClientDisconnect
        return answers.result()
    finally:
        answers.cancel()
        leaving.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def allowed(limits: Limits) -> dict[str, float]:
    """The limits as users are told them."""
    told = asdict(limits) | {"tokens": limits.tokens}
    del told["batch_tokens"]
    return told


def _method(entry: Entry[Any]) -> dict[str, Any]:
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
