//! Bytes written as text: base64 and hexadecimal digits, as headers carry them.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes in base64, padded.
pub(crate) fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let value =
            chunk.iter().fold(0u32, |value, byte| value << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let found = DIGITS[(value >> (18 - 6 * digit) & 63) as usize];
            text.push(if digit <= chunk.len() { found as char } else { '=' });
        }
    }
    text
}

/// The `N` bytes that base64 stands for; `None` for anything else, other lengths included.
pub(crate) fn from_base64<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != N.div_ceil(3) * 4 {
        return None;
    }
    let mut bytes = [0; N];
    for (chunk, coded) in bytes.chunks_mut(3).zip(text.as_bytes().chunks(4)) {
        let (digits, padding) = coded.split_at(chunk.len() + 1);
        let value = digits.iter().try_fold(0u32, |value, digit| {
            let place = DIGITS.iter().position(|known| known == digit)?;
            Some(value << 6 | place as u32)
        })?;
        if padding.iter().any(|byte| *byte != b'=') {
            return None;
        }
        let aligned = value << (6 * padding.len());
        // Bits behind the last byte have to be 0, so that bytes have one spelling.
        if aligned & ((1 << (8 * (3 - chunk.len()))) - 1) != 0 {
            return None;
        }
        chunk.copy_from_slice(&aligned.to_be_bytes()[1..=chunk.len()]);
    }
    Some(bytes)
}

/// The `N` bytes that hexadecimal digits stand for; `None` for anything else, other lengths included.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = digits
            .iter()
            .try_fold(0u8, |value, digit| Some(value << 4 | char::from(*digit).to_digit(16)? as u8))?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn base64_is_as_everyone_writes_it() {
        let cases = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (plain, coded) in cases {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        assert_eq!(from_base64(""), Some([]));
        assert_eq!(from_base64("Zm8="), Some(*b"fo"));
        for bad in ["Zm8", "Zm9=", "Zm8-", "====", "Zm9v", "Zm8=Zm8=", "Zmä="] {
            assert_eq!(from_base64::<2>(bad), None, "{bad}");
        }
        assert_eq!(from_hex("00fFa1"), Some([0, 255, 161]));
        for bad in ["00ffa", "00ffag", "00ffa100", "+0ffa1", "0äffa"] {
            assert_eq!(from_hex::<3>(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn base64_comes_back(bytes: [u8; 32], short: [u8; 4], any in "[A-Za-z0-9+/=]{8}") {
            prop_assert_eq!(from_base64(&base64(&bytes)), Some(bytes));
            prop_assert_eq!(from_base64(&base64(&short)), Some(short));
            if let Some(found) = from_base64::<4>(&any) {
                prop_assert_eq!(base64(&found), any);
            }
        }
    }
}
