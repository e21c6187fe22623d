// The flash is the directory BOARD_FLASH, which outlives the program as flash outlives a restart.
#pragma once

#include <Arduino.h>
#include <unistd.h>

class File {
 public:
  explicit File(FILE* file) : file_(file) {}
  explicit operator bool() const { return file_ != NULL; }
  size_t readBytes(char* text, size_t size) { return fread(text, 1, size, file_); }
  size_t write(const uint8_t* data, size_t length) { return fwrite(data, 1, length, file_); }
  void close() {
    fclose(file_);
    file_ = NULL;
  }

 private:
  FILE* file_;
};

class LinuxFlash {
 public:
  bool begin(bool = false) { return true; }
  bool exists(const char* path) { return access(place(path).c_str(), F_OK) == 0; }
  File open(const char* path, const char* mode) { return File(fopen(place(path).c_str(), mode)); }
  bool rename(const char* from, const char* to) { return ::rename(place(from).c_str(), place(to).c_str()) == 0; }

 private:
  String place(const char* path) { return String(getenv("BOARD_FLASH")) + path; }
};
inline LinuxFlash LittleFS;
