// Runs a sketch as the Arduino core does.
#include <Arduino.h>
#include <unistd.h>

void setup();
void loop();

int main() {
  setvbuf(stdout, NULL, _IOLBF, 0);
  srand(getpid());
  setup();
  for (;;) {
    loop();
    usleep(2000);
  }
}
