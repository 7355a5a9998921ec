//! `mono` and `stereo`: as many channels as asked for.

use crate::decode::audio::Waveform;
use forebay_core::{Error, Result};

/// The mean of all channels.
pub(crate) fn mono(wave: &mut Waveform) {
    let count = wave.channels.len();
    if count < 2 {
        return;
    }
    let mut rest = wave.channels.split_off(1).into_iter();
    let Some(sum) = wave.channels.first_mut() else { return };
    for channel in rest.by_ref() {
        sum.iter_mut().zip(&channel).for_each(|(sum, value)| *sum += value);
    }
    let share = 1.0 / count as f32;
    for value in sum {
        *value *= share;
    }
}

/// Two channels as they are, or one twice.
pub(crate) fn stereo(wave: &mut Waveform) -> Result<()> {
    match wave.channels.as_slice() {
        [only] => wave.channels = vec![only.clone(), only.clone()],
        [_, _] => {}
        more => {
            let why = format!("make audio stereo: it has {} channels", more.len());
            return Err(Error::corrupt(why).with_hint("put `mono` first to take their mean"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_become_their_mean_or_two() {
        let made = |channels: &[[f32; 2]]| Waveform {
            rate: 8000,
            channels: channels.iter().map(|values| values.to_vec()).collect(),
        };
        let mut wave = made(&[[1.0, 0.0], [0.5, -1.0]]);
        stereo(&mut wave).unwrap();
        mono(&mut wave);
        assert_eq!(wave, made(&[[0.75, -0.5]]));
        stereo(&mut wave).unwrap();
        assert_eq!(wave, made(&[[0.75, -0.5], [0.75, -0.5]]));
        assert!(stereo(&mut made(&[[0.0; 2]; 3])).is_err());
    }
}
