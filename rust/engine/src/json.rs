//! A JSON parser that accepts exactly what the reference accepts: RFC 8259, and the values `NaN`, `Infinity` and `-Infinity`.
//!
//! Numbers are doubles. Of a repeated key the last value counts, at the position of the first. Half a surrogate pair, a depth over
//! 32 and text after the value are errors. There is only one error: the payload is malformed.
//!
//! The last functions are for the parser of the fast path, which builds no values. Each reads one token and returns where it ends, or None
//! when it is not there.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::json_number;

pub const MAX_DEPTH: usize = 32;
/// Objects of this many members or more find their keys in a hash table, so that the cost stays linear.
const HASH_FROM: usize = 16;

#[derive(Debug, Clone, PartialEq)]
pub enum ParsedJsonValue<'a> {
    Null,
    Bool(bool),
    Number(f64),
    Text(Cow<'a, str>),
    Array(Vec<ParsedJsonValue<'a>>),
    Object(JsonObject<'a>),
}

pub type JsonObject<'a> = Vec<(Cow<'a, str>, ParsedJsonValue<'a>)>;

#[derive(Debug, PartialEq, Eq)]
pub struct MalformedJson;

/// The one value in `payload`.
pub fn parse(payload: &[u8]) -> Result<ParsedJsonValue<'_>, MalformedJson> {
    let text = std::str::from_utf8(payload).map_err(|_| MalformedJson)?;
    let mut parser = Parser { text, at: 0 };
    let value = parser.value(0)?;
    parser.skip_space();
    if parser.at == text.len() {
        Ok(value)
    } else {
        Err(MalformedJson)
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Skips `byte` if it comes next.
    fn skip_byte(&mut self, byte: u8) -> bool {
        self.skip_space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn literal(&mut self, word: &str, value: ParsedJsonValue<'a>) -> Result<ParsedJsonValue<'a>, MalformedJson> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(MalformedJson);
        }
        self.at += word.len();
        Ok(value)
    }

    fn value(&mut self, depth: usize) -> Result<ParsedJsonValue<'a>, MalformedJson> {
        self.skip_space();
        match self.peek().ok_or(MalformedJson)? {
            b'{' => self.object(depth + 1),
            b'[' => self.array(depth + 1),
            b'"' => Ok(ParsedJsonValue::Text(self.string()?)),
            b't' => self.literal("true", ParsedJsonValue::Bool(true)),
            b'f' => self.literal("false", ParsedJsonValue::Bool(false)),
            b'n' => self.literal("null", ParsedJsonValue::Null),
            b'N' => self.literal("NaN", ParsedJsonValue::Number(f64::NAN)),
            b'I' => self.literal("Infinity", ParsedJsonValue::Number(f64::INFINITY)),
            b'-' if self.text.as_bytes().get(self.at + 1) == Some(&b'I') => {
                self.literal("-Infinity", ParsedJsonValue::Number(f64::NEG_INFINITY))
            }
            _ => {
                let (value, end) = json_number::parse(self.text.as_bytes(), self.at).ok_or(MalformedJson)?;
                self.at = end;
                Ok(ParsedJsonValue::Number(value))
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<ParsedJsonValue<'a>, MalformedJson> {
        self.open(depth)?;
        let mut items = Vec::new();
        if self.skip_byte(b']') {
            return Ok(ParsedJsonValue::Array(items));
        }
        loop {
            items.push(self.value(depth)?);
            if self.skip_byte(b']') {
                return Ok(ParsedJsonValue::Array(items));
            }
            if !self.skip_byte(b',') {
                return Err(MalformedJson);
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<ParsedJsonValue<'a>, MalformedJson> {
        self.open(depth)?;
        let mut members = JsonObjectBuilder::default();
        if self.skip_byte(b'}') {
            return Ok(ParsedJsonValue::Object(members.list));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(MalformedJson);
            }
            let key = self.string()?;
            if !self.skip_byte(b':') {
                return Err(MalformedJson);
            }
            members.put(key, self.value(depth)?);
            if self.skip_byte(b'}') {
                return Ok(ParsedJsonValue::Object(members.list));
            }
            if !self.skip_byte(b',') {
                return Err(MalformedJson);
            }
        }
    }

    fn open(&mut self, depth: usize) -> Result<(), MalformedJson> {
        self.at += 1;
        if depth > MAX_DEPTH { Err(MalformedJson) } else { Ok(()) }
    }

    /// The string whose opening quote comes next.
    fn string(&mut self) -> Result<Cow<'a, str>, MalformedJson> {
        self.at += 1;
        let mut run = self.at;
        let mut decoded: Option<String> = None;
        loop {
            match self.peek().ok_or(MalformedJson)? {
                b'"' => {
                    let tail = &self.text[run..self.at];
                    self.at += 1;
                    return Ok(match decoded {
                        None => Cow::Borrowed(tail),
                        Some(head) => Cow::Owned(head + tail),
                    });
                }
                b'\\' => {
                    let head = decoded.get_or_insert_default();
                    head.push_str(&self.text[run..self.at]);
                    self.at += 1;
                    head.push(self.escape()?);
                    run = self.at;
                }
                0..=0x1f => return Err(MalformedJson),
                _ => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Result<char, MalformedJson> {
        let letter = self.peek().ok_or(MalformedJson)?;
        self.at += 1;
        Ok(match letter {
            b'"' | b'\\' | b'/' => char::from(letter),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(),
            _ => return Err(MalformedJson),
        })
    }

    fn unicode(&mut self) -> Result<char, MalformedJson> {
        let first = self.hex4()?;
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first).ok_or(MalformedJson);
        }
        if !self.text.as_bytes()[self.at..].starts_with(b"\\u") {
            return Err(MalformedJson);
        }
        self.at += 2;
        let second = self.hex4()?;
        if !(0xdc00..0xe000).contains(&second) {
            return Err(MalformedJson);
        }
        char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)).ok_or(MalformedJson)
    }

    fn hex4(&mut self) -> Result<u32, MalformedJson> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4).ok_or(MalformedJson)?;
        let mut code = 0;
        for &digit in digits {
            code = code * 16 + char::from(digit).to_digit(16).ok_or(MalformedJson)?;
        }
        self.at += 4;
        Ok(code)
    }
}

#[derive(Default)]
struct JsonObjectBuilder<'a> {
    list: JsonObject<'a>,
    table: HashMap<Cow<'a, str>, usize>,
}

impl<'a> JsonObjectBuilder<'a> {
    fn put(&mut self, key: Cow<'a, str>, value: ParsedJsonValue<'a>) {
        if let Some(index) = self.position(&key) {
            self.list[index].1 = value;
            return;
        }
        self.list.push((key, value));
        if self.list.len() == HASH_FROM {
            self.table = self.list.iter().enumerate().map(|(i, (key, _))| (key.clone(), i)).collect();
        } else if self.list.len() > HASH_FROM {
            let index = self.list.len() - 1;
            self.table.insert(self.list[index].0.clone(), index);
        }
    }

    fn position(&self, key: &str) -> Option<usize> {
        if self.list.len() < HASH_FROM {
            self.list.iter().position(|(known, _)| known == key)
        } else {
            self.table.get(key).copied()
        }
    }
}

/// Where the members of `"<name>": {…}` begin, if that begins at `at`.
#[inline]
pub fn open_object(payload: &[u8], at: usize, name: u8) -> Option<usize> {
    if payload.get(at..at + 3)? != [b'"', name, b'"'] {
        return None;
    }
    let colon = expect_byte(payload, at + 3, b':')?;
    expect_byte(payload, colon, b'{')
}

/// Where the next member begins or, after the last member, the text behind the object.
pub struct JsonMemberEnd {
    pub at: usize,
    pub is_last: bool,
}

#[inline(always)]
pub fn member_end(payload: &[u8], at: usize) -> Option<JsonMemberEnd> {
    let at = skip_space(payload, at);
    let byte = *payload.get(at)?;
    let is_last = byte == b'}';
    (is_last || byte == b',').then_some(JsonMemberEnd { at: at + 1, is_last })
}

#[inline]
pub fn expect_byte(payload: &[u8], at: usize, byte: u8) -> Option<usize> {
    let at = skip_space(payload, at);
    (payload.get(at) == Some(&byte)).then_some(at + 1)
}

/// Usually there is no space, or one.
#[inline(always)]
pub fn skip_space(payload: &[u8], at: usize) -> usize {
    let at = at + usize::from(payload.get(at) == Some(&b' '));
    match payload.get(at) {
        Some(byte) if *byte > b' ' => at,
        _ => skip_longer_space(payload, at),
    }
}

#[cold]
fn skip_longer_space(payload: &[u8], at: usize) -> usize {
    let rest = payload.get(at..).unwrap_or_default();
    let blank = |byte: &u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
    at + rest.iter().take_while(|byte| blank(byte)).count()
}

#[cfg(test)]
mod tests {
    use super::{ParsedJsonValue, parse};

    #[test]
    fn the_last_value_of_a_repeated_key_counts_at_the_position_of_the_first() {
        let Ok(ParsedJsonValue::Object(members)) = parse(br#"{"a":1,"b":2,"a":3}"#) else {
            panic!()
        };
        let keys: Vec<_> = members.iter().map(|(key, _)| key.as_ref()).collect();
        assert_eq!(keys, ["a", "b"]);
        assert_eq!(members[0].1, ParsedJsonValue::Number(3.0));
    }

    #[test]
    fn broken_payloads_are_malformed() {
        let texts = r#"|{|{"a"}|[1,]|{"a":1,}|"\ud800"|"\udc00"|"\x"|nul|1 2|-|'a'"#;
        for text in texts.split('|').chain(["\u{feff}{}", "\"\n\""]) {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        let too_deep = "[".repeat(33) + &"]".repeat(33);
        assert!(parse(too_deep.as_bytes()).is_err());
        assert!(parse(b"\"\xff\"").is_err());
    }

    #[test]
    fn escapes_become_their_characters() {
        let text = parse(br#""\u00e9\ud83d\ude00\n\/""#).unwrap();
        assert_eq!(text, ParsedJsonValue::Text("é😀\n/".into()));
    }
}
