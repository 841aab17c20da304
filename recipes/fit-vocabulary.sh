#!/usr/bin/env bash
# Fits a vocabulary selector for opus-mt-zh-en, and reports on text it has not seen.
#   recipes/fit-vocabulary.sh DATA FOLDER
set -euo pipefail
data=$1 out=$2

arguments=()
for text in wmt/newstest20{17,18,19} un/dev {captions,msdocs,pydocs,k8sdocs,bible,tatoeba}/train; do
    arguments+=(--source "$data/$text.zh")
done
for text in wmt/newstest2020 wmt/flores-dev wmt/generaltest2022; do
    arguments+=(--test-source "$data/$text.zh")
done
uncurse fit-vocabulary --model opus-mt-zh-en --dtype int8 "${arguments[@]}" --sentences 60 \
    --out "$out/opus-mt-zh-en.safetensors"
