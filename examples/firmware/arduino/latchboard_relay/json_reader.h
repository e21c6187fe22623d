// Reads JSON from the front to the back without memory of its own. Every function returns false for what it did not expect; the
// reader is then of no more use.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

class JsonReader {
 public:
  JsonReader(const uint8_t* text, size_t length) : at_((const char*)text), end_((const char*)text + length) {}

  bool take(char sign) {
    skipSpace();
    if (at_ == end_ || *at_ != sign) return false;
    at_++;
    return true;
  }

  // The next key of an object, whose '{' or ',' is taken; its value follows.
  bool readKey(char* key, size_t size) { return readString(key, size) && take(':'); }

  // False for a longer text, too. Escaped signs become '?': ids and names have none.
  bool readString(char* out, size_t size) {
    if (!take('"')) return false;
    size_t count = 0;
    for (; at_ < end_ && *at_ != '"'; at_++) {
      bool escaped = *at_ == '\\';
      if (escaped && ++at_ == end_) return false;
      if (out != NULL) {
        if (count + 1 >= size) return false;
        out[count++] = escaped ? '?' : *at_;
      }
    }
    if (at_ == end_) return false;
    at_++;
    if (out != NULL) out[count] = 0;
    return true;
  }

  bool readInteger(int64_t* out) {
    skipSpace();
    bool negative = at_ < end_ && *at_ == '-';
    if (negative) at_++;
    if (at_ == end_ || *at_ < '0' || *at_ > '9') return false;
    int64_t value = 0;
    for (; at_ < end_ && *at_ >= '0' && *at_ <= '9'; at_++) {
      if (value > INT64_MAX / 10 - 9) return false;
      value = value * 10 + (*at_ - '0');
    }
    *out = negative ? -value : value;
    return true;
  }

  bool readBoolean(bool* out) { return (*out = readWord("true")) || readWord("false"); }

  bool skipValue() {
    int depth = 0;
    do {
      skipSpace();
      if (at_ == end_) return false;
      char sign = *at_;
      if (sign == '"') {
        if (!readString(NULL, 0)) return false;
      } else if (sign == '{' || sign == '[') {
        depth++;
        at_++;
      } else if (sign == '}' || sign == ']') {
        if (--depth < 0) return false;
        at_++;
      } else if (sign == ',' || sign == ':') {
        if (depth == 0) return false;
        at_++;
      } else {
        while (at_ < end_ && strchr(",:}] \t\r\n", *at_) == NULL) at_++;
      }
    } while (depth > 0);
    return true;
  }

 private:
  void skipSpace() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r' || *at_ == '\n')) at_++;
  }

  bool readWord(const char* word) {
    skipSpace();
    size_t length = strlen(word);
    if ((size_t)(end_ - at_) < length || memcmp(at_, word, length) != 0) return false;
    at_ += length;
    return true;
  }

  const char* at_;
  const char* end_;
};
