//! How the numbers of a column are divided into slices.

use gpu_reduce::{Buffer, Device, Element, Error, Reduce as _, Runs, View};
use gpu_reduce_dynamic::Target;

/// The slices of a column's numbers.
pub enum Division {
    /// The rows or columns of a matrix: one slice for each index of the axis `kept`, 0 or 1.
    Matrix { shape: [usize; 2], kept: usize },
    /// Groups of rows, anywhere: the group of each row, and a copy of that on the device, if it is a GPU.
    Groups { of_rows: Vec<u32>, count: usize, indices: Option<Buffer<u32>> },
    /// Runs of rows: the run of each row.
    Runs { of_rows: Vec<u32>, count: usize, runs: Runs<u32> },
}

impl Division {
    /// `count` groups or runs of rows; `of_rows` is the number of each row's group or run.
    ///
    /// # Errors
    ///
    /// The errors of [`Device::upload`] and [`Reduce::runs`](gpu_reduce::Reduce::runs).
    pub fn of(of_rows: Vec<u32>, count: usize, are_runs: bool, device: &Device) -> Result<Division, Error> {
        let indices = if device.is_cpu() { None } else { Some(device.upload(&of_rows)?) };
        if !are_runs {
            return Ok(Division::Groups { of_rows, count, indices });
        }
        let runs = match &indices {
            None => of_rows.runs()?,
            Some(indices) => indices.runs()?,
        };
        Ok(Division::Runs { of_rows, count, runs })
    }

    /// Leaves out the rows `absent`, which ascend. Returns the slices that still have rows, and for each
    /// slice of `self` its index among these, or `None` if it has no rows left.
    ///
    /// # Errors
    ///
    /// As [`of`](Self::of).
    pub fn without(&self, absent: &[usize], device: &Device) -> Result<(Division, Vec<Option<u32>>), Error> {
        let (of_rows, are_runs) = match self {
            Division::Matrix { .. } => (&[][..], false),
            Division::Groups { of_rows, .. } => (&of_rows[..], false),
            Division::Runs { of_rows, .. } => (&of_rows[..], true),
        };
        let mut absent = absent.iter().copied().peekable();
        let rows = of_rows.iter().enumerate().filter(|(row, _)| absent.next_if_eq(row).is_none());
        let mut kept: Vec<u32> = rows.map(|(_, &slice)| slice).collect();
        let mut count = 0;
        let next = |has_rows: usize| {
            count += u32::from(has_rows > 0);
            (has_rows > 0).then(|| count - 1)
        };
        let places: Vec<Option<u32>> = counts(&kept, self.len()).into_iter().map(next).collect();
        kept.iter_mut().for_each(|slice| *slice = places[*slice as usize].unwrap_or(0));
        Ok((Division::of(kept, count as usize, are_runs, device)?, places))
    }

    /// The number of slices.
    pub fn len(&self) -> usize {
        match self {
            Division::Matrix { shape, kept } => shape[*kept],
            Division::Groups { count, .. } | Division::Runs { count, .. } => *count,
        }
    }

    /// The number of each slice's numbers.
    pub fn counts(&self) -> Vec<usize> {
        match self {
            Division::Matrix { shape, kept } => vec![shape[1 - kept]; shape[*kept]],
            Division::Groups { of_rows, count, .. } | Division::Runs { of_rows, count, .. } => {
                counts(of_rows, *count)
            }
        }
    }

    /// The numbers of one slice after the other.
    pub fn arranged<T: Element>(&self, values: &[T]) -> Vec<T> {
        match self {
            &Division::Matrix { shape: [rows, columns], kept: 1 } => (0..columns)
                .flat_map(|column| (0..rows).map(move |row| values[row * columns + column]))
                .collect(),
            Division::Groups { of_rows, count, .. } => {
                let mut end = 0;
                let start = |count| {
                    end += count;
                    end - count
                };
                let mut places: Vec<usize> = counts(of_rows, *count).into_iter().map(start).collect();
                let mut arranged = values.to_vec();
                for (&group, &value) in of_rows.iter().zip(values) {
                    let place = &mut places[group as usize];
                    arranged[*place] = value;
                    *place += 1;
                }
                arranged
            }
            Division::Matrix { .. } | Division::Runs { .. } => values.to_vec(),
        }
    }

    /// Divides `data` into the slices.
    ///
    /// # Errors
    ///
    /// The errors of [`Reduce::segments`](gpu_reduce::Reduce::segments) and
    /// [`Reduce::by_index`](gpu_reduce::Reduce::by_index).
    pub fn divide<'a, T: Element>(&'a self, data: &'a View<'a, T>) -> Result<Target<'a, T>, Error> {
        Ok(match self {
            Division::Matrix { shape, kept } => Target::Each(data.reshape(shape)?.axis(1 - kept)?),
            Division::Runs { runs, .. } => Target::Each(data.segments(runs)?),
            Division::Groups { of_rows, count, indices: None } => {
                Target::ByIndex(data.by_index(of_rows, *count)?)
            }
            Division::Groups { count, indices: Some(indices), .. } => {
                Target::ByIndex(data.by_index(indices, *count)?)
            }
        })
    }
}

/// The number of rows of each slice.
fn counts(of_rows: &[u32], slices: usize) -> Vec<usize> {
    let mut counts = vec![0; slices];
    of_rows.iter().for_each(|&slice| counts[slice as usize] += 1);
    counts
}
