//! Pixels to JPEG: for made datasets, demonstrations and tests. Preparing samples never encodes.

use crate::image::Image;
use forebay_core::{Error, Result};
use std::ffi::{CStr, c_int, c_void};
use turbojpeg_sys as tj;

/// How many pixels share one color sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Subsampling {
    /// Color at full size.
    S444,
    /// Half the columns.
    S422,
    /// Half the columns and rows: what cameras write.
    #[default]
    S420,
    /// Half the rows.
    S440,
    /// A quarter of the columns.
    S411,
    /// No color; the image is written as gray.
    Gray,
}

/// Everything that can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JpegOptions {
    /// 1 to 100.
    pub quality: u8,
    /// Resolution of color.
    pub subsampling: Subsampling,
    /// Several scans of growing detail instead of one.
    pub progressive: bool,
    /// Take four channels as inverted CMYK, as Adobe writes it.
    pub cmyk: bool,
}

impl Default for JpegOptions {
    fn default() -> Self {
        Self { quality: 90, subsampling: Subsampling::default(), progressive: false, cmyk: false }
    }
}

/// Encodes an image of 1, 3 or 4 channels; the fourth is left out.
pub fn jpeg(image: &Image, quality: u8, subsampling: Subsampling) -> Result<Vec<u8>> {
    jpeg_with(image, &JpegOptions { quality, subsampling, ..JpegOptions::default() })
}

/// Encodes an image with everything chosen.
pub fn jpeg_with(image: &Image, options: &JpegOptions) -> Result<Vec<u8>> {
    let format = match image.channels() {
        1 => tj::TJPF_TJPF_GRAY,
        3 => tj::TJPF_TJPF_RGB,
        4 if options.cmyk => tj::TJPF_TJPF_CMYK,
        4 => tj::TJPF_TJPF_RGBA,
        other => return Err(Error::unsupported(format!("encode jpeg: {other} channels"))),
    };
    let subsampling = match options.subsampling {
        _ if image.channels() == 1 => tj::TJSAMP_TJSAMP_GRAY,
        Subsampling::S444 => tj::TJSAMP_TJSAMP_444,
        Subsampling::S422 => tj::TJSAMP_TJSAMP_422,
        Subsampling::S420 => tj::TJSAMP_TJSAMP_420,
        Subsampling::S440 => tj::TJSAMP_TJSAMP_440,
        Subsampling::S411 => tj::TJSAMP_TJSAMP_411,
        Subsampling::Gray => tj::TJSAMP_TJSAMP_GRAY,
    };
    let encoder = Encoder::new()?;
    encoder.set(tj::TJPARAM_TJPARAM_QUALITY, c_int::from(options.quality))?;
    encoder.set(tj::TJPARAM_TJPARAM_SUBSAMP, subsampling as c_int)?;
    encoder.set(tj::TJPARAM_TJPARAM_PROGRESSIVE, c_int::from(options.progressive))?;
    encoder.compress(image, format)
}

struct Encoder(*mut c_void);

impl Encoder {
    fn new() -> Result<Self> {
        // SAFETY: no argument is a pointer; a null result is checked.
        let handle = unsafe { tj::tj3Init(tj::TJINIT_TJINIT_COMPRESS as c_int) };
        if handle.is_null() {
            return Err(Error::exhausted("make a jpeg encoder: the library has no memory"));
        }
        Ok(Self(handle))
    }

    fn set(&self, parameter: tj::TJPARAM, value: c_int) -> Result<()> {
        // SAFETY: the handle is live.
        if unsafe { tj::tj3Set(self.0, parameter as c_int, value) } == 0 { Ok(()) } else { Err(self.fault()) }
    }

    fn compress(&self, image: &Image, format: c_int) -> Result<Vec<u8>> {
        let (width, height) = (image.width() as c_int, image.height() as c_int);
        let mut bytes: *mut u8 = std::ptr::null_mut();
        let mut len = 0;
        // SAFETY: the image holds `height` rows of `width` pixels without gaps, which is what pitch 0 means; a null
        // output pointer makes the library allocate.
        let status = unsafe {
            let pixels = image.pixels().as_ptr();
            tj::tj3Compress8(self.0, pixels, width, 0, height, format, &raw mut bytes, &raw mut len)
        };
        let encoded = if status == 0 && !bytes.is_null() {
            // SAFETY: on success the library hands over `len` bytes.
            Ok(unsafe { std::slice::from_raw_parts(bytes, len as usize) }.to_vec())
        } else {
            Err(self.fault())
        };
        // SAFETY: the library allocated it, and freeing null is allowed.
        unsafe { tj::tj3Free(bytes.cast()) };
        encoded
    }

    fn fault(&self) -> Error {
        // SAFETY: the library returns a terminated string that lives until the next call with this handle.
        let said = unsafe { CStr::from_ptr(tj::tj3GetErrorStr(self.0)) };
        Error::invalid_config(format!("encode jpeg: {}", said.to_string_lossy()))
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        // SAFETY: the handle came from `tj3Init` and is not used again.
        unsafe { tj::tj3Destroy(self.0) }
    }
}
