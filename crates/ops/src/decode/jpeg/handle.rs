//! The C library's handle: every call into libjpeg-turbo, with what makes it safe.

use crate::image::{Rect, byte_len};
use forebay_core::{Error, Result};
use std::ffi::{CStr, c_int, c_void};
use turbojpeg_sys as tj;

/// Scans of a progressive JPEG. Encoders write about ten; a thousand in a small file keep a processor busy for minutes.
const MAX_SCANS: c_int = 500;

/// Owns a decompressor.
#[derive(Debug)]
pub(super) struct Handle(*mut c_void);

// SAFETY: a handle has no tie to the thread that made it, and its owner's `&mut self` keeps uses apart.
unsafe impl Send for Handle {}

impl Handle {
    pub(super) fn new() -> Result<Self> {
        // SAFETY: no argument is a pointer; a null result is checked.
        let handle = unsafe { tj::tj3Init(tj::TJINIT_TJINIT_DECOMPRESS as c_int) };
        if handle.is_null() {
            return Err(Error::exhausted("make a jpeg decoder: the library has no memory"));
        }
        let handle = Self(handle);
        handle.set(tj::TJPARAM_TJPARAM_SCANLIMIT, MAX_SCANS)?;
        Ok(handle)
    }

    /// Width and height, or what the library says.
    pub(super) fn read_header(&self, payload: &[u8]) -> Result<(u32, u32), String> {
        // SAFETY: the pointer is valid for the given length during the call.
        let status = unsafe { tj::tj3DecompressHeader(self.0, payload.as_ptr(), payload.len() as _) };
        if status != 0 && self.is_fatal() {
            return Err(self.message());
        }
        let side = |parameter| u32::try_from(self.get(parameter)).ok().filter(|side| *side > 0);
        side(tj::TJPARAM_TJPARAM_JPEGWIDTH)
            .zip(side(tj::TJPARAM_TJPARAM_JPEGHEIGHT))
            .ok_or_else(|| "the size is empty".to_owned())
    }

    pub(super) fn decompress(
        &self,
        payload: &[u8],
        (width, height): (u32, u32),
        region: Rect,
        format: c_int,
        target: &mut [u8],
    ) -> Result<(), String> {
        let channels = match format {
            tj::TJPF_TJPF_GRAY => 1,
            tj::TJPF_TJPF_RGB => 3,
            _ => 4,
        };
        assert_eq!(
            target.len(),
            byte_len(region.width, region.height, channels),
            "target of the region's size"
        );
        assert!(region.right() <= width && region.bottom() <= height, "{region:?} of {width}x{height}");
        assert_eq!(self.read_header(payload)?, (width, height), "the info is of this payload");
        let cut = if region == Rect::of_size(width, height) { Rect::default() } else { region };
        let cut = tj::tjregion {
            x: cut.x as c_int,
            y: cut.y as c_int,
            w: cut.width as c_int,
            h: cut.height as c_int,
        };
        // SAFETY: the handle is live and the region is passed by value.
        if unsafe { tj::tj3SetCroppingRegion(self.0, cut) } != 0 {
            return Err(self.message());
        }
        // SAFETY: `payload` is valid for its length. `target` holds `region.height` rows of `region.width` pixels of
        // this format without gaps, which is what pitch 0 means. The library writes the region it was just given, or
        // all of an image whose size it read from the same bytes and which was compared above.
        let status = unsafe {
            tj::tj3Decompress8(self.0, payload.as_ptr(), payload.len() as _, target.as_mut_ptr(), 0, format)
        };
        if status == 0 { Ok(()) } else { Err(self.message()) }
    }

    pub(super) fn set(&self, parameter: tj::TJPARAM, value: c_int) -> Result<()> {
        // SAFETY: the handle is live.
        if unsafe { tj::tj3Set(self.0, parameter as c_int, value) } == 0 {
            return Ok(());
        }
        Err(Error::internal(format!("set up the jpeg decoder: {}", self.message())))
    }

    pub(super) fn get(&self, parameter: tj::TJPARAM) -> c_int {
        // SAFETY: the handle is live.
        unsafe { tj::tj3Get(self.0, parameter as c_int) }
    }

    pub(super) fn is_fatal(&self) -> bool {
        // SAFETY: the handle is live.
        unsafe { tj::tj3GetErrorCode(self.0) == tj::TJERR_TJERR_FATAL as c_int }
    }

    pub(super) fn message(&self) -> String {
        // SAFETY: the library returns a terminated string that lives until the next call with this handle.
        let said = unsafe { CStr::from_ptr(tj::tj3GetErrorStr(self.0)) };
        said.to_string_lossy().replace('\n', " ")
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle came from `tj3Init` and is not used again.
        unsafe { tj::tj3Destroy(self.0) }
    }
}
