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
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, Response

from uncurse.registry import Entry, nearest, parameters_of
from uncurse.rescoring import SCORES
from uncurse.serving.answering import Explanation, Health, Methods, Translations
from uncurse.serving.asking import ExplanationRequest, TranslationRequest
from uncurse.serving.gate import Gate
from uncurse.serving.metrics import CONTENT_TYPE, Metrics
from uncurse.serving.openapi import described
from uncurse.serving.options import Limits
from uncurse.serving.orders import Answer, Refused, TooLate
from uncurse.serving.page import Page
from uncurse.serving.problems import ProblemError, at_fault, response
from uncurse.serving.worker import Busy, Closed, Failed, Worker
from uncurse.stopping import RULES
from uncurse.translator import Translator
from uncurse.version import VERSION

OPEN: Final = frozenset({"/", "/health"})  # what needs no token: there is nothing to read in it
GONE: Final = 499  # what nobody reads, since whoever asked has gone


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
        _handlers(app)
        app.openapi = lambda: described(app, self.limits, self.token is not None)  # type: ignore[method-assign]
        app.add_middleware(Gate, body=self.limits.body, token=self.token, open_paths=OPEN, metrics=metrics)
        return app


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
            raise ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, "the service takes no requests", headers=_later(1))
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
            raise HTTPException(GONE)
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


def _later(seconds: int) -> dict[str, str]:
    return {"Retry-After": str(seconds)}


def _handlers(app: FastAPI) -> None:
    """Whatever ends a request becomes a problem."""

    @app.exception_handler(ProblemError)
    async def problem(request: Request, error: ProblemError) -> Response:
        return response(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        found = error.errors()
        if found[0]["type"] == "json_invalid":
            return response(ProblemError(HTTPStatus.BAD_REQUEST, f"this is not JSON: {found[0]['ctx']['error']}"))
        return response(at_fault([_fault(each) for each in found]))

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> Response:
        return response(at_fault([(error.field, str(error))]))

    @app.exception_handler(Busy)
    async def busy(request: Request, error: Busy) -> Response:
        return response(
            ProblemError(
                HTTPStatus.SERVICE_UNAVAILABLE, "too many sentences are waiting", headers=_later(error.retry_after)
            )
        )

    @app.exception_handler(TooLate)
    async def too_late(request: Request, error: TooLate) -> Response:
        detail = "the deadline has passed before the search could begin"
        return response(ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers=_later(1)))

    @app.exception_handler(Closed)
    async def closed(request: Request, error: Closed) -> Response:
        return response(
            ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, "the service takes no requests", headers=_later(5))
        )

    @app.exception_handler(HTTPException)
    async def status(request: Request, error: HTTPException) -> Response:
        if error.status_code == GONE:
            return Response(status_code=GONE)
        known = HTTPStatus(error.status_code)
        detail = error.detail if error.detail != known.phrase else known.description or known.phrase
        return response(ProblemError(known, detail, headers=dict(error.headers or {})))

    @app.exception_handler(Failed)
    async def failed(request: Request, error: Failed) -> Response:
        return response(_broken())

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> Response:
        return response(_broken())


def _broken() -> ProblemError:
    return ProblemError(HTTPStatus.INTERNAL_SERVER_ERROR, "this is a mistake of the service; its log says more")


def _fault(error: dict[str, Any]) -> tuple[tuple[str | int, ...], str]:
    """The way to a field and what is wrong with it; what was given is not repeated."""
    way = tuple(error["loc"][1:])  # after "body"
    if error["type"] == "extra_forbidden":
        known = [*TranslationRequest.model_fields, *ExplanationRequest.model_fields]
        return way, f"there is no such field{nearest(str(way[-1]), list(dict.fromkeys(known)))}"
    return way, str(error["msg"]).removeprefix("Value error, ")
