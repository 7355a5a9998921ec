//! Draws tar archives by hand, so that tests can make every variant and every fault.

/// One header and its payload.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Name field, cut to 100 bytes.
    pub name: &'a [u8],
    /// Prefix field of ustar.
    pub prefix: &'a [u8],
    /// Type flag.
    pub kind: u8,
    /// Bytes that follow the header.
    pub payload: &'a [u8],
    /// What the size field says when it is not the payload's length.
    pub stated_size: Option<u64>,
    /// Sum signed bytes, as some old writers did.
    pub signed_sum: bool,
    /// Magic field: `ustar\0` + `00`, GNU's `ustar  \0`, or zeros for v7.
    pub magic: &'a [u8; 8],
}

impl Default for Entry<'_> {
    fn default() -> Self {
        Self {
            name: b"",
            prefix: b"",
            kind: b'0',
            payload: b"",
            stated_size: None,
            signed_sum: false,
            magic: b"ustar\x0000",
        }
    }
}

/// Puts entries one after the other.
#[derive(Debug, Default)]
pub struct TarMaker(Vec<u8>);

impl TarMaker {
    /// An empty archive.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a plain file.
    #[must_use]
    pub fn file(self, name: &str, payload: &[u8]) -> Self {
        self.entry(Entry { name: name.as_bytes(), payload, ..Entry::default() })
    }

    /// Adds any entry.
    #[must_use]
    pub fn entry(mut self, entry: Entry<'_>) -> Self {
        self.0.extend(header(entry));
        self.0.extend(entry.payload);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    /// The archive with its two end blocks.
    pub fn finish(mut self) -> Vec<u8> {
        self.0.extend([0; 1024]);
        self.0
    }

    /// The archive without end blocks.
    pub fn unfinished(self) -> Vec<u8> {
        self.0
    }
}

/// An archive of plain files.
pub fn tar_with(members: &[(&str, &[u8])]) -> Vec<u8> {
    members.iter().fold(TarMaker::new(), |maker, (name, payload)| maker.file(name, payload)).finish()
}

/// The 512 bytes of a header.
pub fn header(entry: Entry<'_>) -> [u8; 512] {
    let mut block = [0u8; 512];
    let put = |block: &mut [u8; 512], at: usize, room: usize, bytes: &[u8]| {
        let bytes = &bytes[..bytes.len().min(room)];
        block[at..at + bytes.len()].copy_from_slice(bytes);
    };
    put(&mut block, 0, 100, entry.name);
    put(&mut block, 100, 8, b"0000644\0");
    let size = entry.stated_size.unwrap_or(entry.payload.len() as u64);
    if size <= 0o777_7777_7777 {
        put(&mut block, 124, 12, format!("{size:011o}\0").as_bytes());
    } else {
        block[124] = 0x80;
        put(&mut block, 128, 8, &size.to_be_bytes());
    }
    put(&mut block, 136, 12, b"00000000000\0");
    block[156] = entry.kind;
    put(&mut block, 257, 8, entry.magic);
    put(&mut block, 345, 155, entry.prefix);
    if entry.signed_sum {
        block[148..156].fill(b' ');
        let sum: i64 = block.iter().map(|byte| i64::from(byte.cast_signed())).sum();
        put(&mut block, 148, 8, format!("{sum:06o}\0 ").as_bytes());
    } else {
        fix_sum(&mut block);
    }
    block
}

/// Writes the right checksum into a 512-byte header.
pub fn fix_sum(block: &mut [u8]) {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}
