//! JSON's structural characters and whitespace. Each function returns where the token ends, or None when it is not there.

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
