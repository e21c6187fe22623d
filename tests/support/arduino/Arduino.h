// What the example sketch uses of the Arduino core, on Linux. A pin that is written is a line on standard output; a line on standard
// input, `0 down` or `0 up`, presses or releases the button at a pin.
#pragma once

#include <ctype.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <initializer_list>
#include <map>
#include <string>

typedef uint8_t byte;
typedef bool boolean;

enum { LOW = 0, HIGH = 1, OUTPUT = 1, INPUT_PULLUP = 2 };

inline uint32_t millis() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint32_t)(now.tv_sec * 1000 + now.tv_nsec / 1000000);
}

inline long random(long end) { return end > 0 ? rand() % end : 0; }
inline void pinMode(int, int) {}

inline uint32_t esp_random() {
  uint32_t chance = 0;
  while (getrandom(&chance, sizeof chance, 0) != sizeof chance) {
  }
  return chance;
}

struct LinuxEsp {
  uint32_t random() { return esp_random(); }
};
inline LinuxEsp ESP;

using String = std::string;

// A pin that is set to the level it has makes no line.
inline void digitalWrite(int pin, int level) {
  static std::map<int, int> last;
  if (last.count(pin) == 0 || last[pin] != level) printf("relay %d %s\n", pin, level == HIGH ? "ON" : "OFF");
  last[pin] = level;
}

inline int digitalRead(int pin) {
  static std::map<int, int> levels;
  static std::string line;
  char sign;
  for (pollfd input = {0, POLLIN, 0}; poll(&input, 1, 0) > 0 && read(0, &sign, 1) == 1;) {
    if (sign != '\n') {
      line += sign;
      continue;
    }
    levels[atoi(line.c_str())] = line.find("down") == std::string::npos ? HIGH : LOW;
    line.clear();
  }
  return levels.count(pin) ? levels[pin] : HIGH;
}

inline void configTime(long, int, const char*) {}  // the clock of this machine is right

class Stream {
 public:
  void begin(unsigned long) {}
  void print(const char* text) { printf("%s", text); }
  void println(const char* text) { printf("%s\n", text); }
  void println(int number) { printf("%d\n", number); }
};
inline Stream Serial;

class Client {
 public:
  virtual ~Client() {}
  virtual int connect(const char* host, uint16_t port) = 0;
  virtual size_t write(const uint8_t* data, size_t length) = 0;
  virtual int available() = 0;
  virtual int read() = 0;
  virtual void stop() = 0;
  virtual uint8_t connected() = 0;
};
