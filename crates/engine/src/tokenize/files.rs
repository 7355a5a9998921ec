//! Writes documents into a `.bin` and its `.idx`: the same bytes on every run, and never half of either under its name.
//!
//! Tokens go to `.tmp-NAME.bin` as they come, lengths of documents to a file without a name, so memory does not grow with
//! their number. In the end the index is made of the lengths, and both are synced and renamed, the index last: where there
//! is an index, its data is whole. Where that is lives in `names`.

use super::Tokenized;
use super::names::Names;
use forebay_core::tensor::Dtype;
use forebay_core::{Error, Result};
use forebay_ops::record::tokens::Head;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};

/// Bytes that are written and read at once.
const BUFFER: usize = 1 << 20;

/// Most tokens of a document: an index has 32 bits with a sign for each.
const MOST_TOKENS: u64 = i32::MAX as u64;

/// Both files in the making. Dropping it without [`TokenFiles::finish`] throws them away.
pub(super) struct TokenFiles {
    names: Names,
    dtype: Dtype,
    /// The bytes of the token behind every document.
    eos: Option<Vec<u8>>,
    overwrite: bool,
    data: BufWriter<File>,
    /// Tokens of each document, 32 bits each.
    lengths: BufWriter<File>,
    documents: u64,
    /// Documents with tokens: an index calls their tokens a sequence.
    sequences: u64,
    tokens: u64,
    is_finished: bool,
}

impl TokenFiles {
    /// Files of these names.
    pub(super) fn create(names: Names, dtype: Dtype, eos: Option<u32>, overwrite: bool) -> Result<Self> {
        names.refuse_existing(overwrite)?;
        let folder = &names.folder;
        fs::create_dir_all(folder)
            .map_err(|cause| Error::io(format!("make folder `{}`", folder.display()), cause))?;
        let doing = |cause| Error::io(format!("create `{}`", names.data_making.display()), cause);
        let data = names.lock()?;
        data.set_len(0).map_err(doing)?;
        let lengths = tempfile::tempfile_in(folder).map_err(doing)?;
        let size = dtype.size();
        Ok(Self {
            names,
            dtype,
            eos: eos.map(|eos| eos.to_le_bytes()[..size].to_vec()),
            overwrite,
            data: BufWriter::with_capacity(BUFFER, data),
            lengths: BufWriter::with_capacity(BUFFER, lengths),
            documents: 0,
            sequences: 0,
            tokens: 0,
            is_finished: false,
        })
    }

    /// Documents so far.
    pub(super) fn documents(&self) -> u64 {
        self.documents
    }

    /// Adds a document, the elements of its tokens.
    pub(super) fn add(&mut self, elements: &[u8]) -> Result<()> {
        let mut tokens = (elements.len() / self.dtype.size()) as u64;
        // An end alone would be a document of which nothing can be learnt.
        let eos = self.eos.as_deref().filter(|_| tokens > 0).unwrap_or_default();
        tokens += u64::from(!eos.is_empty());
        if tokens > MOST_TOKENS {
            let why =
                format!("it has {tokens} tokens, and an index tells at most {MOST_TOKENS} of a document");
            return Err(Error::exhausted(why));
        }
        let doing = |cause| Error::io(format!("write `{}`", self.names.data_making.display()), cause);
        self.data.write_all(elements).map_err(doing)?;
        self.data.write_all(eos).map_err(doing)?;
        self.lengths.write_all(&(tokens as u32).to_le_bytes()).map_err(doing)?;
        self.documents += 1;
        self.sequences += u64::from(tokens > 0);
        self.tokens += tokens;
        Ok(())
    }

    /// Writes the index and gives both files their names.
    pub(super) fn finish(mut self) -> Result<Tokenized> {
        if self.tokens == 0 {
            let why = format!(
                "none of {} samples has a token, and a file of none cannot be opened",
                self.documents
            );
            return Err(Error::invalid_config(why).with_hint("look at the texts: `forebay show` prints some"));
        }
        let index_bytes = self.write_index().map_err(|cause| {
            Error::io(format!("write index `{}`", self.names.index_making.display()), cause)
        })?;
        let names = &self.names;
        let doing = |cause| Error::io(format!("finish `{}`", names.data.display()), cause);
        self.data.flush().and_then(|()| self.data.get_ref().sync_all()).map_err(doing)?;
        names.refuse_existing(self.overwrite)?;
        // An index of other data must not stand beside these for a moment.
        match fs::remove_file(&names.index) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(doing(cause)),
            _ => {}
        }
        fs::rename(&names.data_making, &names.data).map_err(doing)?;
        fs::rename(&names.index_making, &names.index).map_err(doing)?;
        self.is_finished = true;
        // The renames themselves must survive a power cut too.
        File::open(&names.folder).and_then(|folder| folder.sync_all()).map_err(doing)?;
        Ok(Tokenized {
            documents: self.documents,
            empty: self.documents - self.sequences,
            tokens: self.tokens,
            dtype: self.dtype,
            data: names.data.clone(),
            data_bytes: self.tokens * self.dtype.size() as u64,
            index: names.index.clone(),
            index_bytes,
        })
    }

    fn write_index(&mut self) -> io::Result<u64> {
        let (sequences, entries) = (self.sequences, self.documents + 1);
        let head = Head { dtype: self.dtype, sequences, entries }.to_bytes().map_err(io::Error::other)?;
        self.lengths.flush()?;
        let mut index = BufWriter::with_capacity(BUFFER, File::create(&self.names.index_making)?);
        index.write_all(&head)?;
        let size = self.dtype.size() as u64;
        self.each_length(|length| match length {
            0 => Ok(()),
            length => index.write_all(&length.to_le_bytes()),
        })?;
        let mut at = 0u64;
        self.each_length(|length| {
            if length > 0 {
                index.write_all(&at.to_le_bytes())?;
                at += u64::from(length) * size;
            }
            Ok(())
        })?;
        let mut before = 0u64;
        index.write_all(&before.to_le_bytes())?;
        self.each_length(|length| {
            before += u64::from(length > 0);
            index.write_all(&before.to_le_bytes())
        })?;
        index.flush()?;
        index.get_ref().sync_all()?;
        Ok(index.get_ref().metadata()?.len())
    }

    /// Goes through the lengths of all documents, from the first on.
    fn each_length(&mut self, mut take: impl FnMut(u32) -> io::Result<()>) -> io::Result<()> {
        let file = self.lengths.get_mut();
        file.seek(SeekFrom::Start(0))?;
        let mut lengths = BufReader::with_capacity(BUFFER, file);
        let mut length = [0; 4];
        for _ in 0..self.documents {
            lengths.read_exact(&mut length)?;
            take(u32::from_le_bytes(length))?;
        }
        Ok(())
    }
}

impl Drop for TokenFiles {
    fn drop(&mut self) {
        // Of finished files nothing is left under these names, unless it is another run's.
        if !self.is_finished {
            let _ = fs::remove_file(&self.names.index_making);
            let _ = fs::remove_file(&self.names.data_making);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::ErrorKind;
    use std::path::Path;

    fn create(out: &Path, eos: Option<u32>, overwrite: bool) -> Result<TokenFiles> {
        TokenFiles::create(Names::of(out)?, Dtype::U16, eos, overwrite)
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_given_up_leaves_nothing_and_what_a_killed_run_left_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("a");
        fs::write(folder.path().join(".tmp-a.bin"), [7; 99]).unwrap();
        let mut files = create(&out, None, false).unwrap();
        files.add(&[1, 0, 2, 0]).unwrap();
        let error = create(&out, None, false).err().unwrap();
        assert!(error.message().contains("another run"), "{error}");
        files.add(&[]).unwrap();
        let made = files.finish().unwrap();
        assert_eq!((made.documents, made.empty, made.tokens), (2, 1, 2));
        assert_eq!(names(folder.path()), ["a.bin", "a.idx"]);
        assert_eq!(fs::read(out.with_extension("bin")).unwrap(), [1, 0, 2, 0]);
        assert_eq!(fs::metadata(out.with_extension("idx")).unwrap().len(), made.index_bytes);
        drop(create(&out, None, true).unwrap());
        assert_eq!(names(folder.path()), ["a.bin", "a.idx"]);
        assert_eq!(fs::read(out.with_extension("bin")).unwrap(), [1, 0, 2, 0]);
    }

    #[test]
    fn files_that_are_there_are_replaced_only_on_demand() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("new/a.bin");
        let make = |overwrite, eos| {
            let mut files = create(&out, eos, overwrite)?;
            files.add(&[5, 0])?;
            files.add(&[])?;
            files.finish()
        };
        make(false, None).unwrap();
        assert_eq!(make(false, None).err().unwrap().kind(), ErrorKind::InvalidConfig);
        // The end stands behind documents that have tokens.
        let made = make(true, Some(258)).unwrap();
        assert_eq!((made.tokens, made.empty), (2, 1));
        assert_eq!(fs::read(&made.data).unwrap(), [5, 0, 2, 1]);
        for out in ["", "x/", "/", "..", ".bin"] {
            assert!(create(Path::new(out), None, false).is_err(), "{out}");
        }
    }

    #[test]
    fn documents_without_any_token_make_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = create(&folder.path().join("a"), Some(1), false).unwrap();
        files.add(&[]).unwrap();
        assert!(files.finish().err().unwrap().message().contains("none of 1 samples"));
        assert!(names(folder.path()).is_empty());
    }
}
