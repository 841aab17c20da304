"""The folder of a training run: tokenizers, checkpoints, log and, at the end, the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, final

from torch import Tensor

from uncurse.errors import UncurseError
from uncurse.storage.atomic import atomic_write, folder_lock, read_regular_file, remove_partial
from uncurse.storage.toml_config import built
from uncurse.text.sentencepiece_tokenizer import MAX_BYTES as MAX_TOKENIZER_BYTES
from uncurse.text.sentencepiece_tokenizer import SentencePieceTokenizer
from uncurse.training.checkpoint import MAX_BYTES as MAX_CHECKPOINT_BYTES
from uncurse.training.checkpoint import Checkpoint, parse_checkpoint, save_checkpoint
from uncurse.training.distributed import ProcessGroup
from uncurse.training.log import TrainingLog

LAST: Final = "last.safetensors"
BEST: Final = "best.safetensors"


@final
@dataclass(frozen=True)
class RunMetadata:
    """What a checkpoint of a run says beside its tensors: what the run is, and how far it has come."""

    recipe: str  # a checksum
    data: str  # a checksum of the text and the tokenizers
    processes: int
    environment: Mapping[str, str]  # see environment.py
    step: int = 0
    tokens: int = 0  # target tokens so far
    loss: float | None = None  # per token, a moving average
    best: float | None = None  # the lowest development perplexity so far

    def checkpoint(self, tensors: dict[str, Tensor]) -> Checkpoint:
        """Tensors with this metadata."""
        return Checkpoint(tensors, {name: value for name, value in asdict(self).items() if value is not None})


@final
class RunFolder:
    """Rank 0 alone touches the disk, and sends the others what they need."""

    def __init__(self, path: Path, processes: ProcessGroup) -> None:
        self.path = path
        self._processes = processes

    @property
    def model(self) -> Path:
        """The folder of the exported model."""
        return self.path / "model"

    def tokenizer(self, name: str, train: Callable[[], SentencePieceTokenizer]) -> SentencePieceTokenizer:
        """The tokenizer of that name, which is trained if there is none."""
        content = b""
        if self._processes.is_rank_zero:
            path = self.path / name
            if not path.exists():
                trained = train()
                self.path.mkdir(parents=True, exist_ok=True)
                atomic_write(path, trained.model)
            content = read_regular_file(path, MAX_TOKENIZER_BYTES)
        try:
            return SentencePieceTokenizer(self._processes.broadcast_from_rank0(content))
        except UncurseError as error:
            raise UncurseError(f"{self.path / name}: {error}") from error

    def save(self, name: str, checkpoint: Checkpoint) -> None:
        """Write a checkpoint; if that fails, the one before is still there."""
        if not self._processes.is_rank_zero:
            return
        try:
            save_checkpoint(self.path / name, checkpoint)
        except OSError as error:
            reason = (
                f"{error.strerror or error}; the last checkpoint is intact, and the same command resumes from it"
            )
            raise OSError(error.errno, reason, str(self.path / name)) from error

    def last_or_first(self, tensors: dict[str, Tensor], expected: RunMetadata) -> tuple[Checkpoint, RunMetadata]:
        """The last checkpoint; a new run saves the given one, and every process starts from the same weights."""
        path, content = self.path / LAST, b""
        if self._processes.is_rank_zero:
            if not path.exists():
                save_checkpoint(path, expected.checkpoint(tensors))
            content = read_regular_file(path, MAX_CHECKPOINT_BYTES)
        checkpoint = parse_checkpoint(self._processes.broadcast_from_rank0(content), path)
        try:
            metadata = built(RunMetadata, checkpoint.metadata, "")
        except UncurseError as error:
            raise UncurseError(f"{path} is not a checkpoint of a training run: {error}") from error
        _check(path, metadata, expected)
        return checkpoint, metadata

    def log(self, step: int) -> TrainingLog | None:
        """The log of the run up to a step; only rank 0 has one."""
        return TrainingLog(self.path, step) if self._processes.is_rank_zero else None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other runs out of the folder, and remove files that an earlier run left half-written."""
        if self._processes.is_rank_zero:
            with folder_lock(self.path):
                remove_partial(self.path)
                remove_partial(self.model)
                yield
        else:
            yield


def _check(path: Path, found: RunMetadata, expected: RunMetadata) -> None:
    """Refuse to resume where the weights would come out different."""
    if found.recipe != expected.recipe:
        raise UncurseError(f"{path} was trained with another recipe: use another folder")
    if found.data != expected.data:
        raise UncurseError(f"{path} was trained on other text or tokenizers: use another folder")
    if found.processes != expected.processes:
        raise UncurseError(
            f"{path} was trained by {found.processes} processes, not {expected.processes}, which would round"
            f" differently: start {found.processes}, on fewer machines if need be, or use another folder"
        )
