"""The service on Ray Serve: several replicas, each with its own model, batcher and queue.

serve run uncurse.serving.ray_app:app model=opus-mt-zh-en replicas=2
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, final

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.serve import Application

from uncurse.models.loaded_model import ModelOptions
from uncurse.serving.app import Service
from uncurse.serving.examples import examples_for
from uncurse.serving.hosts import host_policy
from uncurse.serving.limits import ServiceLimits
from uncurse.serving.server import display_name, model_flags, read_token


@final
class RayServeArguments(BaseModel):
    """What can follow the name of the application on the command line."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    replicas: int = Field(default=1, ge=1)
    threads: int = Field(default=1, ge=1, le=1024)  # of each replica, and the CPUs that Ray reserves for it
    device: str = "cpu"
    dtype: str = "float32"
    source_lang: str | None = None
    target_lang: str | None = None
    prompt: str | None = None
    without_script: str | None = None
    vocabulary_selection: bool = False
    vocabulary_selector: str | None = None
    length_predictor: str | None = None
    token_file: Path | None = None
    allowed_hosts: str = ""  # names with commas between them; IP addresses and localhost are always allowed

    @property
    def model_options(self) -> ModelOptions:
        """What each replica loads."""
        return ModelOptions(
            model=self.model,
            device=self.device,
            dtype=self.dtype,
            source_lang=self.source_lang,
            target_lang=self.target_lang,
            prompt=self.prompt,
            without_script=self.without_script,
            vocabulary_selection=self.vocabulary_selection,
            vocabulary_selector=self.vocabulary_selector,
            length_predictor=self.length_predictor,
        )


def app(arguments: dict[str, Any]) -> Application:
    """The application that `serve run` builds; each replica loads its model where it runs."""
    asked = RayServeArguments.model_validate(arguments)
    token = None if asked.token_file is None else read_token(asked.token_file)
    limits = ServiceLimits()
    names = [name.strip() for name in asked.allowed_hosts.split(",") if name.strip()]
    hosts = host_policy("localhost", "0.0.0.0", names)  # where Ray listens is not known here

    def replica() -> FastAPI:
        import torch

        from uncurse.translation.translator import load_translator

        torch.set_num_threads(asked.threads)
        translator = load_translator(asked.model_options)
        service = Service(
            translator=translator,
            name=display_name(asked.model),
            model_flags=model_flags(asked.model_options),
            limits=limits,
            cpu_threads=asked.threads if asked.device == "cpu" else 1,
            token=token,
            examples=examples_for(asked.model),
            hosts=hosts,
        )
        return service.app()

    deployment = serve.deployment(
        name="uncurse",
        num_replicas=asked.replicas,
        ray_actor_options={"num_cpus": asked.threads},
        max_ongoing_requests=2 * limits.waiting,  # above what a replica takes: it answers 503 by itself
        graceful_shutdown_timeout_s=limits.deadline + 5.0,
    )
    return deployment(serve.ingress(replica)()).bind()
