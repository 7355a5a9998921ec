//! Geometry as arithmetic: what a chain of crops, resizes, pads and mirrors does to a pixel grid, before any pixel
//! exists.
//!
//! A [`Geometry`] says which box of a source is visible, to which grid it is resampled, which window of that grid
//! is kept, what border lies around it and how all of it is mirrored. Ops fold into it as long as the result stays
//! the same; a [`Chain`] starts a new geometry where it would not, for example at the second resize. Executing a
//! geometry is in [`crate::kernels::resample`], drawing the parameters in [`crate::augment`].

use crate::image::Rect;
use forebay_core::recipe::Filter;

/// One pass over pixels: source box, grid, window, border, mirrors, applied in that order.
#[derive(Clone, Debug, PartialEq)]
pub struct Geometry {
    /// Pixels of the source that may be looked at.
    pub visible: Rect,
    /// What `visible` is resampled to; `None` leaves its pixels as they are.
    pub grid: Option<Grid>,
    /// The part of the grid (of `visible` without one) that is kept. May be empty when only border is left.
    pub window: Rect,
    /// Pixels added around the window.
    pub border: Border,
    /// Mirrors of window and border together.
    pub mirror: Mirror,
}

/// Size and filter of a resize.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Interpolation.
    pub filter: Filter,
}

/// Pixels of one value around an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Border {
    /// Columns before the first.
    pub left: u32,
    /// Rows above the first.
    pub top: u32,
    /// Columns after the last.
    pub right: u32,
    /// Rows below the last.
    pub bottom: u32,
    /// Value of all channels.
    pub value: u8,
}

/// Which axes are mirrored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mirror {
    /// Left becomes right.
    pub horizontal: bool,
    /// Top becomes bottom.
    pub vertical: bool,
}

impl Border {
    /// Whether it adds nothing.
    pub fn is_empty(self) -> bool {
        self.left == 0 && self.top == 0 && self.right == 0 && self.bottom == 0
    }
}

impl Mirror {
    /// Whether nothing is mirrored.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

impl Geometry {
    /// Leaves a source of this size as it is.
    pub fn identity(width: u32, height: u32) -> Self {
        let whole = Rect::of_size(width, height);
        Self {
            visible: whole,
            grid: None,
            window: whole,
            border: Border::default(),
            mirror: Mirror::default(),
        }
    }

    /// Columns of the result.
    pub fn width(&self) -> u32 {
        self.border.left.saturating_add(self.window.width).saturating_add(self.border.right)
    }

    /// Rows of the result.
    pub fn height(&self) -> u32 {
        self.border.top.saturating_add(self.window.height).saturating_add(self.border.bottom)
    }

    /// Columns and rows of the source that one step of the grid covers.
    pub fn step(&self) -> (f64, f64) {
        match self.grid {
            None => (1.0, 1.0),
            Some(grid) => (
                f64::from(self.visible.width) / f64::from(grid.width),
                f64::from(self.visible.height) / f64::from(grid.height),
            ),
        }
    }

    /// The pixels of the source that the result depends on.
    pub fn needed(&self) -> Rect {
        let (step_x, step_y) = self.step();
        let reach = self.grid.map_or(0.0, |grid| filter_reach(grid.filter));
        let span = |start: u32, len: u32, step: f64, limit: u32| {
            if self.grid.is_none() {
                return (start, len);
            }
            // One more pixel than the filter reaches: rounding in the coefficients must never meet an edge that
            // the whole source does not have.
            let margin = reach * step.max(1.0) + 1.0;
            let low = (f64::from(start) * step - margin).floor().max(0.0) as u32;
            let high = ((f64::from(start + len) * step + margin).ceil() as u32).min(limit);
            (low, high - low)
        };
        let (x, width) = span(self.window.x, self.window.width, step_x, self.visible.width);
        let (y, height) = span(self.window.y, self.window.height, step_y, self.visible.height);
        Rect { x: self.visible.x + x, y: self.visible.y + y, width, height }
    }

    /// Keeps `rect` of the result. Always folds.
    fn crop(&mut self, rect: Rect) {
        debug_assert!(rect.right() <= self.width() && rect.bottom() <= self.height(), "a crop lies inside");
        let x = if self.mirror.horizontal { self.width() - rect.right() } else { rect.x };
        let y = if self.mirror.vertical { self.height() - rect.bottom() } else { rect.y };
        let border = &mut self.border;
        (border.left, self.window.x, self.window.width, border.right) =
            cut(border.left, self.window.x, self.window.width, x, rect.width);
        (border.top, self.window.y, self.window.height, border.bottom) =
            cut(border.top, self.window.y, self.window.height, y, rect.height);
    }

    /// Resamples the result, or says that this geometry cannot take it in.
    fn resize(&mut self, grid: Grid) -> bool {
        if (self.width(), self.height()) == (grid.width, grid.height) {
            return true;
        }
        // Convolution is symmetric, so a mirror may wait; the nearest pixel is chosen by rounding up at ties, and
        // that is not.
        let waits = self.mirror.is_none() || grid.filter != Filter::Nearest;
        if self.grid.is_some() || !self.border.is_empty() || !waits {
            return false;
        }
        self.visible = Rect {
            x: self.visible.x + self.window.x,
            y: self.visible.y + self.window.y,
            width: self.window.width,
            height: self.window.height,
        };
        self.grid = Some(grid);
        self.window = Rect::of_size(grid.width, grid.height);
        true
    }

    /// Adds a border, or says that this geometry cannot take it in.
    fn pad(&mut self, added: Border) -> bool {
        if added.is_empty() {
            return true;
        }
        if !self.border.is_empty() && self.border.value != added.value {
            return false;
        }
        let mut added = added;
        if self.mirror.horizontal {
            std::mem::swap(&mut added.left, &mut added.right);
        }
        if self.mirror.vertical {
            std::mem::swap(&mut added.top, &mut added.bottom);
        }
        let old = self.border;
        self.border = Border {
            left: old.left.saturating_add(added.left),
            top: old.top.saturating_add(added.top),
            right: old.right.saturating_add(added.right),
            bottom: old.bottom.saturating_add(added.bottom),
            value: added.value,
        };
        true
    }
}

/// Geometries to be executed one after another, each on the result of the one before.
#[derive(Debug)]
pub struct Chain {
    closed: Vec<Geometry>,
    open: Geometry,
}

impl Chain {
    /// A chain that starts from an image of this size.
    pub fn new(width: u32, height: u32) -> Self {
        Self { closed: Vec::new(), open: Geometry::identity(width, height) }
    }

    /// Starts over for another image; the memory stays.
    pub fn restart(&mut self, width: u32, height: u32) {
        self.closed.clear();
        self.open = Geometry::identity(width, height);
    }

    /// Columns and rows after everything so far.
    pub fn size(&self) -> (u32, u32) {
        (self.open.width(), self.open.height())
    }

    /// The geometries so far; the last one is still open.
    pub fn geometries(&self) -> impl Iterator<Item = &Geometry> {
        self.closed.iter().chain([&self.open])
    }

    /// Number of geometries, at least one.
    pub fn count(&self) -> usize {
        self.closed.len() + 1
    }

    /// The geometry at `index`.
    pub fn get(&self, index: usize) -> &Geometry {
        self.closed.get(index).unwrap_or(&self.open)
    }

    /// Keeps `rect`, which must lie inside.
    pub fn crop(&mut self, rect: Rect) {
        self.open.crop(rect);
    }

    /// Resamples to `width` columns and `height` rows.
    pub fn resize(&mut self, width: u32, height: u32, filter: Filter) {
        let grid = Grid { width, height, filter };
        if !self.open.resize(grid) {
            self.close(filter != Filter::Nearest);
            self.open.resize(grid);
        }
    }

    /// Adds a border.
    pub fn pad(&mut self, border: Border) {
        if !self.open.pad(border) {
            self.close(true);
            self.open.pad(border);
        }
    }

    /// Mirrors one axis.
    pub fn mirror(&mut self, mirror: Mirror) {
        self.open.mirror.horizontal ^= mirror.horizontal;
        self.open.mirror.vertical ^= mirror.vertical;
    }

    /// Ends the open geometry, because something needs its pixels. With `carry_mirror` its mirrors move to the next
    /// one, where they may be folded into a pass that is made anyway.
    pub fn close(&mut self, carry_mirror: bool) {
        let (width, height) = self.size();
        let next = Geometry::identity(width, height);
        self.closed.push(std::mem::replace(&mut self.open, next));
        if carry_mirror && let Some(last) = self.closed.last_mut() {
            self.open.mirror = std::mem::take(&mut last.mirror);
        }
    }
}

/// How far beyond the centre a filter looks, in source pixels when enlarging and in grid steps when shrinking.
fn filter_reach(filter: Filter) -> f64 {
    match filter {
        Filter::Nearest | Filter::Bilinear => 1.0,
        Filter::Bicubic => 2.0,
        Filter::Lanczos => 3.0,
    }
}

/// Keeps `len` pixels from `start` of one axis made of border, window and border. Returns the new border before,
/// start and extent of the window, and border after.
fn cut(before: u32, window: u32, extent: u32, start: u32, len: u32) -> (u32, u32, u32, u32) {
    let end = start.saturating_add(len);
    let from = start.max(before);
    let to = end.min(before.saturating_add(extent));
    if from >= to {
        return (len, window, 0, 0);
    }
    (from - start, window + (from - before), to - from, end - to)
}

#[cfg(test)]
mod tests;
