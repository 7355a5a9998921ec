//! NumPy arrays: what is accepted lies inside the payload and has exactly the bytes of its form.
#![no_main]

use forebay_ops::decode::npy;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|payload: &[u8]| {
    if let Ok(array) = npy::parse(payload) {
        assert!(array.data.start <= array.data.end && array.data.end <= payload.len());
        assert_eq!(array.data.len(), array.spec.bytes());
        let mut row = vec![0; array.spec.bytes()];
        npy::decode_into(payload, &array.spec, &mut row).expect("its own form fits");
        assert_eq!(row, &payload[array.data]);
    }
});
