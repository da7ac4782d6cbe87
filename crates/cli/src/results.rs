//! The results of an operator for all numbers or for each slice.

use gpu_reduce_dynamic::{Value, Values};

/// The results of an operator. Each is one number or several.
pub struct Results {
    values: Values,
    /// For each slice the index of its result, if not all slices have one.
    places: Option<Vec<Option<u32>>>,
    /// Converts the text of each number, if the numbers stand for something else.
    convert: Option<Convert>,
}

type Convert = Box<dyn Fn(&str) -> String + Sync>;

impl From<Values> for Results {
    fn from(values: Values) -> Results {
        Results { values, places: None, convert: None }
    }
}

impl<V: Value> From<Vec<V>> for Results {
    fn from(values: Vec<V>) -> Results {
        Values::of(values).into()
    }
}

impl Results {
    /// Assigns the results to slices: `places` has the index of each slice's result, or `None` for a slice
    /// without a result.
    pub fn at(self, places: Option<Vec<Option<u32>>>) -> Results {
        Results { places, ..self }
    }

    /// The results with their texts converted.
    pub fn converted(self, convert: impl Fn(&str) -> String + Sync + 'static) -> Results {
        Results { convert: Some(Box::new(convert)), ..self }
    }

    /// The number of results.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// The numbers of the result of slice `index` as text, with enough digits to identify each; floats have a
    /// decimal point. Empty texts if the slice has no result.
    pub fn texts(&self, index: usize) -> impl Iterator<Item = String> {
        let place =
            self.places.as_ref().map_or(Some(index), |places| places[index].map(|place| place as usize));
        (0..self.width()).map(move |number| {
            let text = place.map(|place| self.values.text(place * self.width() + number));
            match (text, &self.convert) {
                (Some(text), Some(convert)) => convert(&text),
                (text, _) => text.unwrap_or_default(),
            }
        })
    }

    /// The numbers per result.
    pub fn width(&self) -> usize {
        self.values.width()
    }

    /// The bytes of all numbers.
    pub fn bytes(&self) -> &[u8] {
        self.values.bytes()
    }

    /// NumPy's name of the numbers' type, if NumPy has it.
    pub fn descr(&self) -> Option<&'static str> {
        self.values.descr().filter(|_| self.convert.is_none())
    }
}
