//! Where things in an image go when its pixels are moved: points, and boxes as the part of them that is still seen.
//!
//! Coordinates count pixels from the left and top edge: the first pixel spans 0 to 1. Every move also says which part of
//! its result shows the source. A box is carried as a convex polygon and cut wherever pixels are; its bounds are taken
//! once, at the end, so they are as tight after a turn and a crop as the two allow.

use crate::geometry::{Geometry, Mirror};

/// A place.
pub type Point = [f64; 2];

/// One move of all pixels.
#[derive(Clone, Debug, PartialEq)]
pub enum Move {
    /// Box, grid, window, border and mirrors.
    Geometry(Geometry),
    /// Along a matrix from the result to the source, `[a, b, c, d, e, f, g, h, i]` by rows, in an image of this width and
    /// height.
    Matrix([f64; 9], [f64; 2]),
}

/// Depths below this lie at the horizon.
const HORIZON: f64 = 1e-6;

impl Move {
    /// Whether left and right change places.
    fn mirrors(&self) -> bool {
        match self {
            Self::Geometry(geometry) => geometry.mirror.horizontal != geometry.mirror.vertical,
            Self::Matrix(..) => false,
        }
    }

    /// Where the point goes, unless it is not seen any more.
    fn point(&self, point: Point) -> Option<Point> {
        let mapped = match self {
            Self::Geometry(geometry) => along(geometry, point),
            Self::Matrix(matrix, _) => {
                let inverse = invert(matrix)?;
                (depth(&inverse, point) > HORIZON).then(|| project(&inverse, point))?
            }
        };
        let [left, top, right, bottom] = self.seen();
        let inside = (left..=right).contains(&mapped[0]) && (top..=bottom).contains(&mapped[1]);
        inside.then_some(mapped)
    }

    /// Maps a polygon, all of it.
    fn polygon(&self, polygon: &mut Vec<Point>) {
        match self {
            Self::Geometry(geometry) => {
                for point in polygon {
                    *point = along(geometry, *point);
                }
            }
            Self::Matrix(matrix, _) => {
                let Some(inverse) = invert(matrix) else { return polygon.clear() };
                clip(polygon, |point| depth(&inverse, point) - HORIZON);
                for point in polygon {
                    *point = project(&inverse, *point);
                }
            }
        }
    }

    /// Left, top, right and bottom of what shows the source.
    fn seen(&self) -> [f64; 4] {
        match self {
            Self::Matrix(_, [width, height]) => [0.0, 0.0, *width, *height],
            Self::Geometry(geometry) => {
                let (border, window) = (geometry.border, geometry.window);
                let left = if geometry.mirror.horizontal { border.right } else { border.left };
                let top = if geometry.mirror.vertical { border.bottom } else { border.top };
                let [left, top] = [f64::from(left), f64::from(top)];
                [left, top, left + f64::from(window.width), top + f64::from(window.height)]
            }
        }
    }
}

/// Where the moves lead a point, unless it is not seen at the end.
pub fn point(moves: &[Move], size: [f64; 2], point: Point) -> Option<Point> {
    let inside = (0.0..=size[0]).contains(&point[0]) && (0.0..=size[1]).contains(&point[1]);
    moves.iter().try_fold(inside.then_some(point)?, |point, one| one.point(point))
}

/// Whether the moves show a mirrored image.
pub fn is_mirrored(moves: &[Move]) -> bool {
    moves.iter().filter(|one| one.mirrors()).count() % 2 == 1
}

/// What is left of a box: its bounds, and the share of it that is seen. Nothing when that is nothing.
pub fn bounds(
    moves: &[Move],
    size: [f64; 2],
    [left, top, right, bottom]: [f64; 4],
) -> Option<([f64; 4], f64)> {
    let mut kept = vec![[left, top], [right, top], [right, bottom], [left, bottom]];
    cut(&mut kept, [0.0, 0.0, size[0], size[1]]);
    // What was never in the image cannot be lost from it.
    let mut whole = kept.clone();
    for one in moves {
        one.polygon(&mut kept);
        cut(&mut kept, one.seen());
        one.polygon(&mut whole);
    }
    let (area, all) = (area(&kept), area(&whole));
    if !(area > 0.0 && all > 0.0) {
        return None;
    }
    let mut bounds = [f64::INFINITY, f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY];
    for [x, y] in kept {
        bounds = [bounds[0].min(x), bounds[1].min(y), bounds[2].max(x), bounds[3].max(y)];
    }
    let sound = bounds.iter().all(|value| value.is_finite());
    (sound && bounds[2] > bounds[0] && bounds[3] > bounds[1]).then_some((bounds, (area / all).min(1.0)))
}

fn along(geometry: &Geometry, [x, y]: Point) -> Point {
    let (step_x, step_y) = geometry.step();
    let Mirror { horizontal, vertical } = geometry.mirror;
    let axis = |at: f64, first: u32, step: f64, window: u32, border: u32, (mirrored, size): (bool, u32)| {
        let moved = (at - f64::from(first)) / step - f64::from(window) + f64::from(border);
        if mirrored { f64::from(size) - moved } else { moved }
    };
    let (visible, window, border) = (geometry.visible, geometry.window, geometry.border);
    [
        axis(x, visible.x, step_x, window.x, border.left, (horizontal, geometry.width())),
        axis(y, visible.y, step_y, window.y, border.top, (vertical, geometry.height())),
    ]
}

/// Keeps what lies inside.
fn cut(polygon: &mut Vec<Point>, [left, top, right, bottom]: [f64; 4]) {
    clip(polygon, |[x, _]| x - left);
    clip(polygon, |[x, _]| right - x);
    clip(polygon, |[_, y]| y - top);
    clip(polygon, |[_, y]| bottom - y);
}

/// Keeps the part of a convex polygon where a linear function is not negative.
fn clip(polygon: &mut Vec<Point>, inside: impl Fn(Point) -> f64) {
    let mut kept = Vec::with_capacity(polygon.len() + 1);
    for (at, point) in polygon.iter().enumerate() {
        let before = polygon[(at + polygon.len() - 1) % polygon.len()];
        let (there, here) = (inside(before), inside(*point));
        if (there < 0.0) != (here < 0.0) {
            let share = there / (there - here);
            kept.push([0, 1].map(|axis| before[axis] + share * (point[axis] - before[axis])));
        }
        if here >= 0.0 {
            kept.push(*point);
        }
    }
    *polygon = kept;
}

fn area(polygon: &[Point]) -> f64 {
    let next = polygon.iter().cycle().skip(1);
    let twice: f64 = polygon.iter().zip(next).map(|([x, y], [to_x, to_y])| x * to_y - to_x * y).sum();
    0.5 * twice.abs()
}

fn depth([.., g, h, i]: &[f64; 9], [x, y]: Point) -> f64 {
    g * x + h * y + i
}

fn project(matrix: &[f64; 9], [x, y]: Point) -> Point {
    let [a, b, c, d, e, f, ..] = matrix;
    let depth = depth(matrix, [x, y]);
    [(a * x + b * y + c) / depth, (d * x + e * y + f) / depth]
}

/// The way back.
fn invert([a, b, c, d, e, f, g, h, i]: &[f64; 9]) -> Option<[f64; 9]> {
    let (first, second, third) = (e * i - f * h, f * g - d * i, d * h - e * g);
    let determinant = a * first + b * second + c * third;
    let sound = determinant.is_finite() && determinant.abs() > 1e-300;
    let cofactors = [
        first,
        c * h - b * i,
        b * f - c * e,
        second,
        a * i - c * g,
        c * d - a * f,
        third,
        b * g - a * h,
        a * e - b * d,
    ];
    sound.then(|| cofactors.map(|value| value / determinant))
}

#[cfg(test)]
mod tests;
