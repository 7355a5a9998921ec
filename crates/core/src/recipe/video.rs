//! Columns of video: a payload of frames, or a field for each frame, as one tensor whose first axis is time.
//!
//! What is done to a frame are the ops of images. Their chance is drawn by sample, not by frame, so all frames of a clip
//! are cropped, mirrored and colored alike. Only which frames are taken is new: [`Clip`], the first op of a column. How
//! files are taken apart is in the `ops` crate.

use super::augment::Fault;
use super::{Decode, FieldRecipe, Op};
use serde::{Deserialize, Serialize};

/// Most frames of one clip, and widest stride.
const MAX_FRAMES: u32 = 1 << 16;

/// Which frames of a video are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clip {
    /// How many.
    pub frames: u32,
    /// Every how manieth.
    #[serde(default = "one")]
    pub stride: u32,
    /// Where the clip lies in the video.
    #[serde(default)]
    pub place: ClipPlace,
    /// What becomes of videos that are shorter.
    #[serde(default)]
    pub short: ShortVideo,
}

/// Where a clip lies in its video.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClipPlace {
    /// Anywhere, drawn anew every epoch.
    #[default]
    Random,
    /// In the middle.
    Center,
    /// At the beginning.
    Start,
}

/// What becomes of a video that is shorter than the clip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShortVideo {
    /// Its last frame is repeated.
    #[default]
    Repeat,
    /// It begins again.
    Loop,
    /// It is a bad sample.
    Refuse,
}

impl Clip {
    /// Frames from the first to the last that is taken.
    pub fn span(&self) -> u64 {
        u64::from(self.frames.saturating_sub(1)) * u64::from(self.stride) + 1
    }

    pub(super) fn faults(&self) -> Vec<Fault> {
        let bounded = |name, value| {
            let sound = (1..=MAX_FRAMES).contains(&value);
            (!sound).then(|| (name, format!("{value} is not in 1..={MAX_FRAMES}")))
        };
        [bounded("frames", self.frames), bounded("stride", self.stride)].into_iter().flatten().collect()
    }
}

impl FieldRecipe {
    /// Which frames are taken, when not all are.
    pub fn clip(&self) -> Option<&Clip> {
        self.ops.iter().find_map(|op| if let Op::Clip(clip) = op { Some(clip) } else { None })
    }

    /// Frames, height and width of every sample, when the recipe alone decides them.
    pub fn fixed_clip(&self) -> Option<(u32, u32, u32)> {
        let Decode::Video { .. } = self.decode else { return None };
        let (height, width) = super::check::fixed_size(&self.ops)?;
        self.clip().map(|clip| (clip.frames, height, width))
    }

    /// Whether the column is made from a stored field of this name.
    pub fn reads(&self, field: &str) -> bool {
        let is_video = matches!(self.decode, Decode::Video { .. });
        self.alternatives().any(|name| name == field || is_video && frame_number(name, field).is_some())
    }

    /// What is wrong with the names of a video's fields.
    pub(super) fn frame_name_fault(&self) -> Option<&'static str> {
        let is_video = matches!(self.decode, Decode::Video { .. });
        let several = is_video && self.alternatives().any(|name| name.matches('*').count() > 1);
        several.then_some("has more than one `*` in a name: it stands for a frame's number, once")
    }

    /// Why videos cannot be put together along time, if they cannot.
    pub(super) fn along_time_fault(&self) -> Option<&'static str> {
        if self.clip().is_some() {
            return Some("all clips have so many frames already: leave it out");
        }
        let free = super::check::fixed_size(&self.ops).is_none();
        free.then_some("frames must be of one size: add `resize` or a crop")
    }
}

/// The number that `*` stands for in a field's name, when the name is that of a frame.
pub fn frame_number(pattern: &str, field: &str) -> Option<u64> {
    let (before, after) = pattern.split_once('*')?;
    let digits = field.strip_prefix(before)?.strip_suffix(after)?;
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if all_digits { digits.parse().ok() } else { None }
}

/// Pixels of all decoded frames together above which a video is refused: 300 frames of 1280 x 720 are half of it.
pub const fn default_video_pixels() -> u64 {
    1 << 29
}

fn one() -> u32 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn column(field: &str, decode: &Value, ops: &Value) -> Vec<String> {
        let recipe = json!([{"field": field, "decode": decode, "ops": ops}]);
        super::super::Recipe::from_value(recipe)
            .map_or_else(|error| vec![error.to_string()], |sound| sound.check())
    }

    #[test]
    fn a_star_stands_for_the_number_of_a_frame() {
        assert_eq!(frame_number("frame*.jpg", "frame0012.jpg"), Some(12));
        assert_eq!(frame_number("*.jpg", "7.jpg"), Some(7));
        for (pattern, field) in [
            ("frame*.jpg", "frame.jpg"),
            ("frame*.jpg", "frame1a.jpg"),
            ("frame*.jpg", "frame+1.jpg"),
            ("frame*.jpg", "frame1.png"),
            ("jpg", "jpg"),
            ("a*a", "a"),
            ("*.jpg", "99999999999999999999.jpg"),
        ] {
            assert_eq!(frame_number(pattern, field), None, "{pattern} {field}");
        }
    }

    #[test]
    fn the_shape_of_a_clip_is_known_when_frames_and_their_size_are() {
        let field = |ops: Value| -> FieldRecipe {
            serde_json::from_value(json!({"field": "avi", "decode": {"kind": "video"}, "ops": ops})).unwrap()
        };
        let clip = json!({"op": "clip", "frames": 8, "stride": 4});
        let crop = json!({"op": "center_crop", "size": [6, 9]});
        assert_eq!(field(json!([clip, crop])).fixed_clip(), Some((8, 6, 9)));
        assert_eq!(field(json!([clip])).fixed_clip(), None);
        assert_eq!(field(json!([crop])).fixed_clip(), None);
        assert_eq!(field(json!([clip])).clip().unwrap().span(), 29);
    }

    #[test]
    fn what_videos_cannot_be_is_said() {
        let video = json!({"kind": "video"});
        let clip = json!({"op": "clip", "frames": 2});
        let crop = json!({"op": "center_crop", "size": 8});
        let cases = [
            ("jpg", json!({"kind": "image"}), json!([clip]), "works on videos"),
            ("txt", json!({"kind": "text"}), json!([clip]), "works on images"),
            ("avi", video.clone(), json!([crop, clip]), "comes first"),
            ("avi", video.clone(), json!([{"op": "clip", "frames": 0}]), "not in 1..="),
            ("avi", video.clone(), json!([{"op": "clip", "frames": 2, "stride": 0}]), "not in 1..="),
            ("*a*", video.clone(), json!([clip, crop]), "more than one `*`"),
            ("avi", video.clone(), json!([{"op": "pad_batch"}]), "one size"),
            ("avi", video.clone(), json!([clip, crop, {"op": "ragged"}]), "so many frames already"),
        ];
        for (field, decode, ops, expected) in cases {
            let faults = column(field, &decode, &ops).join("; ");
            assert!(faults.contains(expected), "{field} {ops}: `{faults}`");
        }
        for ops in [json!([clip, crop]), json!([crop, {"op": "pad_batch"}]), json!([crop, {"op": "ragged"}])]
        {
            assert_eq!(column("*.jpg;avi", &video, &ops), Vec::<String>::new(), "{ops}");
        }
    }
}
