#!/usr/bin/env bash
# Fits the length predictors that come with the package, and reports on text they have not seen.
#   recipes/fit-lengths.sh DATA FOLDER opus-mt-zh-en
#   recipes/fit-lengths.sh DATA FOLDER zh-en-small
set -euo pipefail
data=$1 out=$2 model=$3

case $model in
    opus-mt-zh-en)
        pairs=6000
        texts=(wmt/newstest20{17,18,19,20} un/dev {captions,msdocs,pydocs,k8sdocs,bible,tatoeba}/train)
        tests=({captions,msdocs,pydocs,k8sdocs,bible,tatoeba}/dev wmt/generaltest2022 wmt/flores-dev)
        ;;
    zh-en-small)
        pairs=5000
        texts=({pydocs,k8sdocs,bible,tatoeba}/train)
        tests=({pydocs,k8sdocs,bible,tatoeba}/dev)
        ;;
    *)
        echo "$model is neither opus-mt-zh-en nor zh-en-small" >&2
        exit 2
        ;;
esac

arguments=()
for text in "${texts[@]}"; do
    reference=0
    [[ $text == bible/train ]] && reference=2 # of four translations the one with the most usual length
    arguments+=(--source "$data/$text.zh" --target "$data/$text.en.$reference")
done
for text in "${tests[@]}"; do
    arguments+=(--test-source "$data/$text.zh" --test-target "$data/$text.en.0")
done
uncurse fit-length --model "$model" "${arguments[@]}" --pairs "$pairs" --out "$out/$model.safetensors"
