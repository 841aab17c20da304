"""Example sentences for the page."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from uncurse.errors import UncurseError
from uncurse.models.pretrained_models import BUNDLED, find_pretrained
from uncurse.text.lines import read_lines

MAX_EXAMPLES: Final = 50
CHINESE: Final = (  # the scores choose different translations for most of them
    "祭司站在门口，向众人念律法书上的话。",
    "外面下雨了，你最好带上雨伞。",
    "他说自己从来没有去过那个地方，也不认识那里的任何人。",
    "昨天晚上我们在河边散步的时候，看见一只白色的鸟从水面上飞过。",
    "研究人员发现，睡眠不足的人更容易做出错误的决定，而且自己往往意识不到这一点。",
    "政府表示，新的措施将在明年年初开始实施，以减少城市的空气污染。",
    "我明天想和朋友一起去图书馆看书。",
    "她每天早上六点起床，然后去公园跑步。",
    "因为他行了正直的事，百姓都平安度日。",
    "你可以使用这个命令来查看集群中所有节点的状态。",
    "如果文件不存在，这个函数会返回空列表。",
)


def examples_for(model: str | None) -> tuple[str, ...]:
    """Sentences in the source language of a model, where that is known."""
    entry = None if model is None else find_pretrained(model)
    languages = "Chinese to English" if model in (None, BUNDLED.name) else "" if entry is None else entry.languages
    return CHINESE if languages.startswith("Chinese to ") else ()


def read_examples(path: Path) -> tuple[str, ...]:
    """The sentences in a file, one on each line; empty lines are skipped."""
    lines = tuple(line.strip() for line in read_lines(path) if line.strip())
    if not 1 <= len(lines) <= MAX_EXAMPLES:
        raise UncurseError(f"{path} has {len(lines)} sentences; the page has room for 1 to {MAX_EXAMPLES}")
    return lines
