#!/usr/bin/env bash
# Fills fuzz/corpus/<target> with the checked-in seeds and with the images and attacks of the ops tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
data=../crates/ops/tests/data
for target in fuzz_targets/*.rs; do
    target=$(basename "$target" .rs)
    mkdir -p "corpus/$target"
    if [ -n "$(ls -A "seeds/$target" 2>/dev/null)" ]; then
        cp "seeds/$target"/* "corpus/$target/"
    fi
done
for kind in png webp npy json; do
    cp "$data/attacks"/*."$kind" "corpus/$kind/"
done
cp "$data"/audio/*.{flac,mp3,ogg,opus} "$data"/attacks/*.{wav,flac,mp3,ogg,opus} corpus/audio/
cp "$data"/video/*.avi "$data"/attacks/*.avi corpus/avi/
cp "$data"/png/*.png corpus/png/
cp "$data"/webp/*.webp corpus/webp/
cp "$data"/attacks/*.jpg corpus/jpeg/
