"""The service on Ray Serve: several replicas, each with a model, a worker and a queue of its own.

serve run uncurse.serving.ray_app:app model=opus-mt-zh-en replicas=2
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, final

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.serve import Application

from uncurse.serving.app import Service
from uncurse.serving.examples import examples_for
from uncurse.serving.options import Limits
from uncurse.serving.running import name_of, read_token


@final
class Arguments(BaseModel):
    """What can be said after the name of the application."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    replicas: int = Field(default=1, ge=1)
    threads: int = Field(default=1, ge=1)  # of each replica, and the CPUs that Ray sets aside for it
    device: str = "cpu"
    dtype: str = "float32"
    source_lang: str | None = None
    target_lang: str | None = None
    without_script: str | None = None
    token_file: Path | None = None


def app(arguments: dict[str, Any]) -> Application:
    """The application as `serve run` builds it; models are loaded where the replicas are."""
    asked = Arguments.model_validate(arguments)
    token = None if asked.token_file is None else read_token(asked.token_file)
    limits = Limits()

    def replica() -> FastAPI:
        import torch

        from uncurse.loading import load

        torch.set_num_threads(asked.threads)
        languages = asked.source_lang, asked.target_lang
        translator = load(asked.model, asked.device, asked.dtype, *languages, asked.without_script)
        return Service(translator, name_of(asked.model), limits, token, examples_for(asked.model)).app()

    deployment = serve.deployment(
        name="uncurse",
        num_replicas=asked.replicas,
        ray_actor_options={"num_cpus": asked.threads},
        max_ongoing_requests=2 * limits.waiting,  # a replica says by itself when it has too much to do
        graceful_shutdown_timeout_s=limits.deadline + 5.0,
    )
    return deployment(serve.ingress(replica)()).bind()
