#!/usr/bin/env bash
# Fills fuzz/corpus/<target> with the checked-in seeds, the images and attacks of the ops tests, and the fixtures and
# attacks of the engine's.
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

fixtures=../crates/engine/tests/fixtures

# Copies standard input into the corpus of a target, behind bytes given in hex: behind <hex> <target> <name>
behind() {
    { printf '%b' "$1"; cat; } >"corpus/$2/$3"
}

# The unsigned number of so many bytes, least first, that a file has at a place: number <file> <place> <bytes>
number() {
    head -c "$(($2 + $3))" "$1" | tail -c "$3" | od -An -v -t "u$3" --endian=little | tr -d ' '
}

# Whole files, behind the number of their name in the target.
kinds=(zip tfrecord rec tar parquet csv jsonl mds)
for at in "${!kinds[@]}"; do
    for file in "$fixtures"/*."${kinds[$at]}" "$fixtures"/*/*."${kinds[$at]}"; do
        [ ! -f "$file" ] || behind "\\x0$at" open_dataset "${file##*/}" <"$file"
    done
done
for file in seeds/tar_index/*.tar; do
    behind '\x03' open_dataset "sound_${file##*/}" <"$file"
done
for folder in "$fixtures"/*/ "$fixtures"/attacks/*/; do
    name=$(basename "$folder")
    case "$name" in
        mds*) first='\x08' ;;
        litdata*) first='\x8a' ;;
        *) continue ;;
    esac
    [ ! -f "$folder/index.json" ] || behind "$first" open_dataset "$name" <"$folder/index.json"
done
for file in "$fixtures"/attacks/tokens_*/*.idx; do
    behind '\x09' open_dataset "$(basename "$(dirname "$file")")" <"$file"
done
tail -c +2 seeds/records/recordio | behind '\x02' open_dataset sound.rec
tail -c +2 seeds/token_index/two | behind '\x09' open_dataset two.idx

# The first record of files of TFRecord, and a member of a zip, behind the number of their format.
for file in "$fixtures"/*.tfrecord; do
    head -c $(($(number "$file" 0 8) + 16)) "$file" | behind '\x00' records "${file##*/}"
done
head -c 241 "$fixtures/members.zip" | behind '\x02' records members.zip

# Footers of Parquet as they are; a first page behind what says that it holds bytes without lists and is not compressed.
for file in "$fixtures"/parquet/*.parquet; do
    size=$(wc -c <"$file")
    footer=$(number "$file" $((size - 8)) 4)
    head -c "$((size - 8))" "$file" | tail -c "$footer" >"corpus/parquet/footer_${file##*/}"
    head -c 604 "$file" | tail -c +5 | behind '\x36\x00\x00' parquet "page_${file##*/}"
done
