//! Images in memory: 8 bits a channel, channels last, rows without gaps, and boxes on their pixel grid.
//!
//! [`Image`] owns its pixels and is made to be used again; [`ImageRef`] and [`ImageMut`] look at pixels that live
//! elsewhere, a batch row for example. Decoding is in [`crate::decode`], changing pixels in [`crate::augment`].

/// An image that owns its pixels. [`Image::reshape`] keeps the memory, so one image serves many samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    width: u32,
    height: u32,
    channels: usize,
    pixels: Vec<u8>,
}

/// Pixels to read.
#[derive(Clone, Copy, Debug)]
pub struct ImageRef<'a> {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Bytes of a pixel: 1 (gray), 3 (RGB) or 4 (RGBA).
    pub channels: usize,
    /// `height * width * channels` bytes.
    pub pixels: &'a [u8],
}

/// Pixels to change in place.
#[derive(Debug)]
pub struct ImageMut<'a> {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Bytes of a pixel: 1 (gray), 3 (RGB) or 4 (RGBA).
    pub channels: usize,
    /// `height * width * channels` bytes.
    pub pixels: &'a mut [u8],
}

/// A box of whole pixels: columns `x..x + width`, rows `y..y + height`. May be empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rect {
    /// First column.
    pub x: u32,
    /// First row.
    pub y: u32,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl Image {
    /// A black image.
    pub fn new(width: u32, height: u32, channels: usize) -> Self {
        let mut image = Self::default();
        image.reshape(width, height, channels);
        image
    }

    /// Wraps pixels, or gives them back when there are not exactly `height * width * channels`.
    pub fn from_pixels(width: u32, height: u32, channels: usize, pixels: Vec<u8>) -> Result<Self, Vec<u8>> {
        if pixels.len() == byte_len(width, height, channels) {
            Ok(Self { width, height, channels, pixels })
        } else {
            Err(pixels)
        }
    }

    /// Changes the size and keeps the memory. Pixels are unspecified afterwards.
    pub fn reshape(&mut self, width: u32, height: u32, channels: usize) {
        self.pixels.resize(byte_len(width, height, channels), 0);
        (self.width, self.height, self.channels) = (width, height, channels);
    }

    /// Columns.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Rows.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// Bytes of a pixel.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// All pixels, row by row.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// All pixels, row by row, writable.
    pub fn pixels_mut(&mut self) -> &mut [u8] {
        &mut self.pixels
    }

    /// The channels of one pixel.
    ///
    /// # Panics
    /// When the pixel is outside.
    pub fn pixel(&self, x: u32, y: u32) -> &[u8] {
        assert!(x < self.width && y < self.height, "pixel ({x}, {y}) of {}x{}", self.width, self.height);
        let start = (y as usize * self.width as usize + x as usize) * self.channels;
        &self.pixels[start..start + self.channels]
    }

    /// Looks at all of it.
    pub fn as_ref(&self) -> ImageRef<'_> {
        let &Self { width, height, channels, ref pixels } = self;
        ImageRef { width, height, channels, pixels }
    }

    /// Looks at all of it, writable.
    pub fn as_mut(&mut self) -> ImageMut<'_> {
        let &mut Self { width, height, channels, ref mut pixels } = self;
        ImageMut { width, height, channels, pixels }
    }

    /// Everything in `rect` and the rest cut away, as a new image.
    ///
    /// # Panics
    /// When `rect` reaches outside.
    #[must_use]
    pub fn cropped(&self, rect: Rect) -> Self {
        let mut cut = Self::new(rect.width, rect.height, self.channels);
        self.as_ref().copy_rect(rect, cut.pixels_mut());
        cut
    }
}

impl ImageRef<'_> {
    /// Copies the pixels of `rect`, row by row without gaps, to the start of `target`.
    ///
    /// # Panics
    /// When `rect` reaches outside or `target` is too short.
    pub fn copy_rect(&self, rect: Rect, target: &mut [u8]) {
        let row = rect.width as usize * self.channels;
        if row == 0 {
            return;
        }
        assert!(rect.right() <= self.width && rect.bottom() <= self.height, "{rect:?} reaches outside");
        let stride = self.width as usize * self.channels;
        let first = rect.y as usize * stride + rect.x as usize * self.channels;
        for (y, line) in target.chunks_exact_mut(row).take(rect.height as usize).enumerate() {
            let start = first + y * stride;
            line.copy_from_slice(&self.pixels[start..start + row]);
        }
    }
}

impl<'a> ImageMut<'a> {
    /// The same pixels, to read.
    pub fn as_ref(&self) -> ImageRef<'_> {
        ImageRef { width: self.width, height: self.height, channels: self.channels, pixels: self.pixels }
    }

    /// Looks at `pixels` as an image.
    ///
    /// # Panics
    /// When there are not exactly `height * width * channels` of them.
    pub fn new(width: u32, height: u32, channels: usize, pixels: &'a mut [u8]) -> Self {
        assert_eq!(pixels.len(), byte_len(width, height, channels), "pixels of {width}x{height}x{channels}");
        Self { width, height, channels, pixels }
    }
}

impl Rect {
    /// The box at the origin.
    pub const fn of_size(width: u32, height: u32) -> Self {
        Self { x: 0, y: 0, width, height }
    }

    /// The column after the last.
    pub const fn right(self) -> u32 {
        self.x + self.width
    }

    /// The row after the last.
    pub const fn bottom(self) -> u32 {
        self.y + self.height
    }

    /// Whether it holds no pixel.
    pub const fn is_empty(self) -> bool {
        self.width == 0 || self.height == 0
    }
}

/// Bytes of an image.
pub fn byte_len(width: u32, height: u32, channels: usize) -> usize {
    width as usize * height as usize * channels
}
