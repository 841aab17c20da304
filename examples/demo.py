"""What wider beams do to real models: `python examples/demo.py`.

The bundled model translates a dozen sentences with the raw log-probability and with F1-Norm, the default, in beams
of 5, 20 and 50; then OPUS-MT translates half of them, if it is here or can be downloaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from rich import box
from rich.console import Console
from rich.table import Table

import uncurse
from uncurse.models.download import download
from uncurse.translation.translator import Translation, Translator

LINES = (
    "耶稣对他们说，你们要彼此相爱。",
    "王听见这话，就打发使者往各城去。",
    "他们清早起来，到河边去打水。",
    "你的儿子从远方回来，我的心就喜乐。",
    "祭司站在门口，向众人念律法书上的话。",
    "因为他行了正直的事，百姓都平安度日。",
    "我明天想和朋友一起去图书馆看书。",
    "她每天早上六点起床，然后去公园跑步。",
    "外面下雨了，你最好带上雨伞。",
    "如果文件不存在，这个函数会返回空列表。",
    "你可以使用这个命令来查看集群中所有节点的状态。",
    "默认情况下，每个线程都有自己的缓冲区。",
)
BEAM_SIZES = (5, 20, 50)
SCORES = ("log-prob", "f1-norm")
OTHER = "opus-mt-zh-en"

Found = dict[tuple[str, int], list[Translation]]  # by score and beam size


def translated(translator: Translator, lines: Sequence[str]) -> Found:
    """Every line by every score at every beam size."""
    return {
        (score, beam_size): translator.translate(lines, beam_size=beam_size, score=score)
        for score in SCORES
        for beam_size in BEAM_SIZES
    }


def sentence_table(found: Found, index: int) -> Table:
    """What becomes of one sentence as the beam grows."""
    first = found["f1-norm", BEAM_SIZES[0]][index]
    title = f"{first.source}  (expected length {first.expected_length:.1f})"
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for column in ("score", "beam", "n", "steps", "certificate", "translation"):
        table.add_column(column, justify="right" if column in ("beam", "n", "steps") else "left")
    above = ""
    for (score, beam_size), translations in found.items():
        result = translations[index].result
        assert result is not None  # only empty lines have none
        text = translations[index].text or "(nothing at all)"
        length, certificate = str(result.hypotheses[0].length), result.certificate.name
        table.add_row(
            score, str(beam_size), length, str(result.steps), certificate, "〃" if text == above else text
        )
        above = text
    return table


def sum_table(found: Found, title: str) -> Table:
    """The same over all sentences."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for column in ("score", "beam", "tokens", "of those expected", "empty", "steps", "proved"):
        table.add_column(column, justify="left" if column == "score" else "right")
    for (score, beam_size), translations in found.items():
        results = [each.result for each in translations if each.result is not None]
        tokens = sum(result.hypotheses[0].length for result in results)
        expected = sum(each.expected_length or 0.0 for each in translations)
        table.add_row(
            score,
            str(beam_size),
            str(tokens),
            f"{tokens / expected:.2f}",
            str(sum(not each.text for each in translations)),
            str(sum(result.steps for result in results)),
            f"{fmean(result.certificate.proved for result in results):.0%}",
        )
    return table


def show(console: Console, found: Found, indices: Sequence[int], title: str) -> None:
    """Some sentences, and all of them in sum."""
    for index in indices:
        console.print(sentence_table(found, index))
    console.print(sum_table(found, title))


def main() -> None:
    """Translate and print."""
    console = Console()
    show(console, translated(uncurse.load(), LINES), range(len(LINES)), "All of them, by the bundled model")
    console.print(
        "Read a sentence from top to bottom: what happens to its length as the beam grows? The raw log-probability"
        " prefers what is short. F1-Norm compares the log-probability per token and penalises outputs that are"
        " shorter or longer than expected. Every search ran until its result was proved or it reached the maximum"
        " length. BEAM: nothing it could still have found scores higher. GLOBAL: no sequence up to the maximum"
        " length does.\n",
        highlight=False,
    )
    try:
        console.print(f"{OTHER}: downloading it unless it is here (75 MB, once) …", highlight=False)
        download(OTHER)
    except (uncurse.UncurseError, OSError) as error:
        console.print(f"{OTHER} is left out, since it cannot be downloaded here: {error}", highlight=False)
        return
    found = translated(uncurse.load(OTHER, dtype="int8"), LINES[::2])
    show(console, found, (0, 2, 3), f"Every second one, by {OTHER} in int8")
    console.print("Now try: .venv/bin/uncurse explain --model opus-mt-zh-en '外面下雨了。'", highlight=False)


if __name__ == "__main__":
    main()
