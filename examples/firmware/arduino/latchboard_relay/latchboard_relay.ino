// A relay for Latchboard on an ESP32 or ESP8266, or several, with buttons: commands, state, telemetry, and the schedule while the
// network is down.
//
// Libraries: PubSubClient 2.8 or newer. What is yours is in settings.h. What the service knows is in latchboard_config.h, or the
// board asks for it with a provisioning code (claim.h).

#include <PubSubClient.h>
#include <time.h>
#ifdef ESP8266
#include <ESP8266WiFi.h>
#else
#include <WiFi.h>
#endif

#include "json_reader.h"
#include "settings.h"
#if USE_PROVISIONING
#include "claim.h"
#else
#include "latchboard_config.h"
#endif
#if USE_TLS
#include <WiFiClientSecure.h>
#endif

static const char VERSION[] = "1.1.0";
static const uint16_t BUFFER_SIZE = 1024;  // PubSubClient silently drops a message that does not fit
static const uint16_t KEEPALIVE_S = 30;
static const uint16_t SOCKET_TIMEOUT_S = 5;
static const uint32_t WAIT_FOR_TIME_MS = 5000;
static const uint32_t TIME_EVERY_MS = 3600000;
static const uint32_t LONGEST_BACKOFF_MS = 60000;
static const size_t KNOWN_RESULTS = 16;
static const size_t MAX_ROWS = 5;
static const size_t ID_SIZE = 65;
static const uint32_t DEBOUNCE_MS = 30;
static const uint32_t NEXT_PRESS_MS = 400;  // a later one is another press
static const uint32_t LONG_PRESS_MS = 1000;

// The types are here because the Arduino IDE declares all functions before the first one.

struct Row {  // of the schedule
  int64_t onS, offS, channel;
  bool enabled;
};

struct RelayPin {
  uint8_t pin;
  const char* name;
};

struct ButtonPin {
  uint8_t pin;
  const char* name;
  uint8_t toggles;  // the channel of a relay; 0: none
};

struct Relay {
  bool on;
  const char* by;
  char command[ID_SIZE];
};

struct Button {
  bool down, read, isLong;  // `read`: as it was read last; `down`: as it is when it does not bounce any more
  uint8_t presses;
  uint32_t readAt, downAt;
};

enum Outcome { OUTCOME_DONE, OUTCOME_EXPIRED, OUTCOME_UNSUPPORTED, OUTCOME_UNKNOWN_CHANNEL };

struct Order {
  char id[ID_SIZE], cmd[ID_SIZE];
  int64_t expiresMs;  // 0: no deadline
  int64_t channel;
};

struct Result {
  char id[ID_SIZE];
  Outcome outcome;
  int64_t channel;
  bool hasPlan;
};

#if USE_TLS
static WiFiClientSecure network;
#ifdef ESP8266
static BearSSL::X509List authority(CA_PEM);
#endif
#else
static WiFiClient network;
#endif
static PubSubClient mqtt(network);

// --- The clock: the service tells the time, millis() carries it on ---

static bool clockKnown = false;
static int64_t clockMs = 0;  // Unix milliseconds
static uint32_t clockTick = 0;

static void runClock() {
  uint32_t tick = millis();
  clockMs += tick - clockTick;  // right also when millis() begins again at 0, after 49 days
  clockTick = tick;
}

// `"ts":…,` for the beginning of a message; empty without a clock. In two parts, because not every printf knows 64 bits.
static const char* stamp() {
  static char text[32];
  text[0] = 0;
  if (clockKnown) snprintf(text, sizeof text, "\"ts\":%lu%03u,", (unsigned long)(clockMs / 1000), (unsigned)(clockMs % 1000));
  return text;
}

// --- The channels: the relays from 1 on, then the buttons. A board with one relay and no button does not speak of channels ---

static const RelayPin RELAY_PINS[] = {{RELAY_PIN, RELAY_NAME}, MORE_RELAYS};
static const ButtonPin BUTTON_PINS[] = {BUTTONS{0, NULL, 0}};  // the last one only ends the list
static const int RELAY_COUNT = sizeof RELAY_PINS / sizeof *RELAY_PINS;
static const int BUTTON_COUNT = sizeof BUTTON_PINS / sizeof *BUTTON_PINS - 1;
static const int CHANNELS = RELAY_COUNT + BUTTON_COUNT;
static_assert(CHANNELS <= 64, "the service knows 64 channels of a device");
static Relay relays[RELAY_COUNT];
static Button buttons[BUTTON_COUNT + 1];

static Relay* findRelay(int64_t channel) { return channel >= 1 && channel <= RELAY_COUNT ? &relays[channel - 1] : NULL; }

static void switchPin(uint8_t pin, bool on) { digitalWrite(pin, on == (RELAY_ON_LEVEL == HIGH) ? HIGH : LOW); }

static void setRelay(Relay& relay, bool on, const char* by, const char* command) {
  switchPin(RELAY_PINS[&relay - relays].pin, on);
  relay.on = on;
  relay.by = by;
  snprintf(relay.command, sizeof relay.command, "%s", command);
}

// Does nothing while the network is down; all states are reported after each connect. Only that of the first relay is retained.
static void reportState(const Relay& relay) {
  char text[224], channel[24] = "", command[ID_SIZE + 8] = "";
  if (&relay != relays) snprintf(channel, sizeof channel, "\"ch\":%d,", (int)(&relay - relays) + 1);
  if (relay.command[0]) snprintf(command, sizeof command, ",\"id\":\"%s\"", relay.command);
  snprintf(text, sizeof text, "{%s%s\"relay\":\"%s\",\"by\":\"%s\"%s}", stamp(), channel, relay.on ? "ON" : "OFF",
           relay.by, command);
  mqtt.publish(TOPIC_STATE, text, &relay == relays);
}

// What `down` means for the button: NULL until a press is over, or long.
static const char* pressOf(Button& button, bool down, uint32_t now) {
  static const char* const PRESSES[] = {"SINGLE", "DOUBLE", "TRIPLE"};
  if (down != button.read) {
    button.read = down;
    button.readAt = now;
  }
  if (button.read != button.down && now - button.readAt >= DEBOUNCE_MS) {
    button.down = button.read;
    if (button.down) button.downAt = now;
    else if (!button.isLong && button.presses < 3) button.presses++;
    if (!button.down) button.isLong = false;
  }
  if (button.down && !button.isLong && now - button.downAt >= LONG_PRESS_MS) {
    button.isLong = true;
    button.presses = 0;
    return "LONG";
  }
  if (button.down || button.presses == 0 || now - button.readAt < NEXT_PRESS_MS) return NULL;
  const char* press = PRESSES[button.presses - 1];
  button.presses = 0;
  return press;
}

// `,"ch":[…],"names":[…]` for `hello`. Names that do not fit are left out, and so are signs that would have to be escaped.
static void describeChannels(char* text, size_t size) {
  size_t at = snprintf(text, size, ",\"ch\":[");
  for (int i = 0; i < CHANNELS; i++) at += snprintf(text + at, size - at, "%s\"%s\"", i ? "," : "", i < RELAY_COUNT ? "RELAY" : "INPUT");
  at += snprintf(text + at, size - at, "],\"names\":[");
  for (int i = 0; i < CHANNELS; i++) {
    const char* name = i < RELAY_COUNT ? RELAY_PINS[i].name : BUTTON_PINS[i - RELAY_COUNT].name;
    if (at + strlen(name) + 6 > size) break;
    if (i) text[at++] = ',';
    text[at++] = '"';
    for (; *name; name++)
      if ((uint8_t)*name >= ' ' && *name != '"' && *name != '\\') text[at++] = *name;
    text[at++] = '"';
  }
  snprintf(text + at, size - at, "]");
}

// --- The schedule ---

static char planText[256] = "{\"rev\":0,\"s\":[]}";  // as the service wrote it, for GET_SCHEDULES
static Row plan[MAX_ROWS];
static size_t planRows = 0;
static int64_t planRevision = 0;
static int64_t planDoneS = 0;  // edges until this second are settled

static void publishRevision() {
  char topic[sizeof TOPIC_SCHED + 4], text[40];
  snprintf(topic, sizeof topic, "%s/rev", TOPIC_SCHED);
  snprintf(text, sizeof text, "{\"rev\":%ld}", (long)planRevision);
  mqtt.publish(topic, text, true);
}

static bool readRow(JsonReader& json, Row* row) {
  int64_t slot;
  row->channel = 1;
  return json.take('[') && json.readInteger(&slot) && json.take(',') && json.readInteger(&row->onS) && json.take(',') &&
         json.readInteger(&row->offS) && json.take(',') && json.readBoolean(&row->enabled) &&
         (!json.take(',') || json.readInteger(&row->channel)) && json.take(']');
}

static bool readPlan(JsonReader& json, Row* rows, size_t* count, int64_t* revision) {
  char key[8];
  bool known = false;
  *count = 0;
  if (!json.take('{')) return false;
  do {
    if (!json.readKey(key, sizeof key)) return false;
    if (strcmp(key, "rev") == 0) {
      if (!json.readInteger(revision)) return false;
      known = true;
    } else if (strcmp(key, "s") == 0) {
      if (!json.take('[')) return false;
      if (json.take(']')) continue;
      do {
        if (*count == MAX_ROWS || !readRow(json, &rows[(*count)++])) return false;
      } while (json.take(','));
      if (!json.take(']')) return false;
    } else if (!json.skipValue()) {
      return false;
    }
  } while (json.take(','));
  return known && json.take('}');
}

static void onPlan(const uint8_t* payload, size_t length) {
  Row rows[MAX_ROWS];
  size_t count;
  int64_t revision;
  JsonReader json(payload, length);
  if (length >= sizeof planText || !readPlan(json, rows, &count, &revision)) {
    Serial.println("latchboard: unreadable plan");  // the old one stays, and its revision tells the service so
    return;
  }
  memcpy(plan, rows, sizeof plan);
  memcpy(planText, payload, length);
  planText[length] = 0;
  planRows = count;
  planRevision = revision;
  publishRevision();
}

// Whether a slot switches the relay at this second, and to what.
static bool edgeAt(int64_t second, int64_t channel, bool* on) {
  bool found = *on = false;
  for (size_t i = 0; i < planRows; i++) {
    if (!plan[i].enabled || plan[i].channel != channel) continue;
    if (plan[i].onS == second) found = *on = true;  // one slot ends and another begins: on
    if (plan[i].offS == second) found = true;
  }
  return found;
}

// Run the edges since the last call, in their order. What was due before the clock was known, the service decides. A slot for a
// channel that this firmware lacks is not run here; the service runs it.
static void runPlan() {
  if (!clockKnown) return;
  int64_t nowS = clockMs / 1000;
  for (;;) {
    int64_t next = INT64_MAX;
    for (size_t i = 0; i < planRows; i++) {
      for (int64_t dueS : {plan[i].onS, plan[i].offS})
        if (dueS > planDoneS && dueS <= nowS && dueS < next) next = dueS;
    }
    if (next == INT64_MAX) break;
    planDoneS = next;
    for (int channel = 1; channel <= RELAY_COUNT; channel++) {
      bool on;
      if (!edgeAt(next, channel, &on)) continue;
      setRelay(relays[channel - 1], on, "sched", "");
      reportState(relays[channel - 1]);
    }
  }
  if (nowS > planDoneS) planDoneS = nowS;
}

// --- Commands ---

static Result results[KNOWN_RESULTS];  // of the last commands, which are never run twice
static size_t nextResult = 0;

static const Result* findResult(const char* id) {
  for (size_t i = 0; i < KNOWN_RESULTS; i++)
    if (strcmp(results[i].id, id) == 0) return &results[i];
  return NULL;
}

// PubSubClient publishes at QoS 0. The service sends a command again only while it has had no answer at all. If this result is lost
// after the `ack`, the command ends TIMED_OUT; what the relay does, the service learns from the state after the next connect.
static void publishResult(const Result& result) {
  char text[sizeof planText + 192], state[24] = "";
  if (const Relay* relay = findRelay(result.channel)) snprintf(state, sizeof state, ",\"relay\":\"%s\"", relay->on ? "ON" : "OFF");
  if (result.outcome == OUTCOME_EXPIRED)
    snprintf(text, sizeof text, "{\"id\":\"%s\",\"status\":\"expired\"}", result.id);
  else if (result.outcome == OUTCOME_UNSUPPORTED)
    snprintf(text, sizeof text, "{\"id\":\"%s\",\"status\":\"error\",\"code\":\"UNSUPPORTED\"}", result.id);
  else if (result.outcome == OUTCOME_UNKNOWN_CHANNEL)
    snprintf(text, sizeof text, "{\"id\":\"%s\",\"status\":\"error\",\"code\":\"UNKNOWN_CHANNEL\"}", result.id);
  else if (result.hasPlan)
    snprintf(text, sizeof text, "{\"id\":\"%s\",\"status\":\"done\"%s,\"data\":%s}", result.id, state, planText);
  else
    snprintf(text, sizeof text, "{\"id\":\"%s\",\"status\":\"done\"%s}", result.id, state);
  mqtt.publish(TOPIC_RESULT, text);
}

static bool isPlainId(const char* id) {
  for (const char* sign = id; *sign; sign++)
    if (!isalnum((unsigned char)*sign) && *sign != '_') return false;
  return *id != 0;
}

static bool readOrder(JsonReader& json, Order* order) {
  char key[16];
  order->id[0] = order->cmd[0] = 0;
  order->expiresMs = 0;
  order->channel = 1;
  if (!json.take('{')) return false;
  do {
    if (!json.readKey(key, sizeof key)) return false;
    bool read = strcmp(key, "id") == 0    ? json.readString(order->id, ID_SIZE)
                : strcmp(key, "cmd") == 0 ? json.readString(order->cmd, ID_SIZE)
                : strcmp(key, "exp") == 0 ? json.readInteger(&order->expiresMs)
                : strcmp(key, "ch") == 0  ? json.readInteger(&order->channel)
                                          : json.skipValue();
    if (!read) return false;
  } while (json.take(','));
  return json.take('}') && isPlainId(order->id) && order->cmd[0] != 0;
}

static Outcome execute(const Order& order, bool* hasPlan) {
  *hasPlan = strcmp(order.cmd, "GET_SCHEDULES") == 0;
  if (clockKnown && order.expiresMs != 0 && clockMs > order.expiresMs) return OUTCOME_EXPIRED;
  if (order.channel < 1 || order.channel > CHANNELS) return OUTCOME_UNKNOWN_CHANNEL;
  Relay* relay = findRelay(order.channel);
  if (strcmp(order.cmd, "STATUS") == 0 || *hasPlan) return OUTCOME_DONE;
  if (relay == NULL) return OUTCOME_UNSUPPORTED;
  if (strcmp(order.cmd, "ON") == 0)
    setRelay(*relay, true, "cmd", order.id);
  else if (strcmp(order.cmd, "OFF") == 0)
    setRelay(*relay, false, "cmd", order.id);
  else if (strcmp(order.cmd, "TOGGLE") == 0)
    setRelay(*relay, !relay->on, "cmd", order.id);
  else
    return OUTCOME_UNSUPPORTED;
  return OUTCOME_DONE;
}

static void onCommand(const uint8_t* payload, size_t length) {
  Order order;
  JsonReader json(payload, length);
  if (!readOrder(json, &order)) {
    Serial.println("latchboard: unreadable command");
    return;
  }
  if (const Result* known = findResult(order.id)) {  // the service has had no answer: give it again, do not run the command again
    publishResult(*known);
    return;
  }
  char ack[ID_SIZE + 32];
  snprintf(ack, sizeof ack, "{\"id\":\"%s\",\"status\":\"ack\"}", order.id);
  mqtt.publish(TOPIC_RESULT, ack);
  Result& result = results[nextResult++ % KNOWN_RESULTS];
  memcpy(result.id, order.id, ID_SIZE);
  result.channel = order.channel;
  result.outcome = execute(order, &result.hasPlan);
  const Relay* relay = findRelay(order.channel);
  if (relay != NULL && strcmp(relay->command, order.id) == 0) reportState(*relay);
  publishResult(result);
}

// --- The connection ---

static bool announced = false;  // the service knows that we are ready
static bool connected = false;
static uint32_t connectedAt = 0, lastTime = 0, lastTelemetry = 0;
static uint32_t lastAttempt = 0, backoffMs = 1000, waitMs = 0;

static void topicBelow(char* topic, size_t size, const char* below) { snprintf(topic, size, "%s%s", TOPIC_PREFIX, below); }

static void askTime() {
  char topic[sizeof TOPIC_PREFIX + 12];
  topicBelow(topic, sizeof topic, "time/get");
  mqtt.publish(topic, "");
  lastTime = millis();
}

static void onTime(const uint8_t* payload, size_t length) {
  char key[8];
  int64_t ms;
  JsonReader json(payload, length);
  if (!json.take('{') || !json.readKey(key, sizeof key) || strcmp(key, "t") != 0 || !json.readInteger(&ms)) return;
  clockMs = ms;
  clockTick = millis();
  if (!clockKnown) planDoneS = ms / 1000;
  clockKnown = true;
}

// PubSubClient uses one buffer for what comes and what goes, so the message is copied before anything is published.
static void onMessage(char* topic, uint8_t* payload, unsigned int length) {
  static uint8_t message[BUFFER_SIZE];
  if (length > sizeof message) return;
  memcpy(message, payload, length);
  const char* below = topic + strlen(TOPIC_PREFIX);
  if (strcmp(below, "cmd") == 0) onCommand(message, length);
  else if (strcmp(below, "sched") == 0) onPlan(message, length);
  else if (strcmp(below, "time") == 0) onTime(message, length);
}

static bool trustReady() {
#if USE_TLS && defined(ESP8266)
  if (time(NULL) < 1700000000) return false;  // NTP has not answered yet
  network.setX509Time(time(NULL));
#endif
  return true;
}

// Half of the time is chance, so that a fleet does not come back all at once.
static void waitBeforeNextAttempt() {
  lastAttempt = millis();
  waitMs = backoffMs / 2 + random(backoffMs / 2 + 1);
}

// Later and later after each failure.
static void tryToConnect() {
  if (WiFi.status() != WL_CONNECTED || millis() - lastAttempt < waitMs || !trustReady()) return;
#if USE_PROVISIONING
  if (!hasCredentials(network)) return;
#endif
#if USE_TLS
  mqtt.setServer(MQTT_HOST, MQTT_TLS_PORT);
#else
  mqtt.setServer(MQTT_HOST, MQTT_PORT);
#endif
  connected = mqtt.connect(MQTT_CLIENT_ID, MQTT_USERNAME, MQTT_PASSWORD, TOPIC_STATUS, 1, true, "offline");
  if (!connected) {
    Serial.print("latchboard: no connection, state ");
    Serial.println(mqtt.state());  // 4 and 5: wrong password, or the device is disabled
    waitBeforeNextAttempt();
    backoffMs = backoffMs * 2 > LONGEST_BACKOFF_MS ? LONGEST_BACKOFF_MS : backoffMs * 2;
    return;
  }
  char topic[sizeof TOPIC_PREFIX + 8];
  topicBelow(topic, sizeof topic, "time");
  mqtt.subscribe(topic, 1);
  askTime();
  announced = false;
  connectedAt = millis();
}

static void onLostConnection() {
  Serial.println("latchboard: the connection is lost");
  connected = false;
  backoffMs = 1000;
  waitBeforeNextAttempt();
}

// The clock comes before the commands, so that a late command is recognised.
static void announce() {
  if (announced || (!clockKnown && millis() - connectedAt < WAIT_FOR_TIME_MS)) return;
  announced = true;
  char topic[sizeof TOPIC_PREFIX + 8], channels[768] = "", text[sizeof channels + 64];
  mqtt.publish(TOPIC_STATUS, "online", true);
  reportState(relays[0]);
  topicBelow(topic, sizeof topic, "hello");
  if (CHANNELS > 1) describeChannels(channels, sizeof channels);
  snprintf(text, sizeof text, "{\"fw\":\"%s\",\"sched\":%ld%s}", VERSION, (long)planRevision, channels);
  mqtt.publish(topic, text);
  for (int i = 1; i < RELAY_COUNT; i++) reportState(relays[i]);  // after `hello`, by which the service knows them
  mqtt.subscribe(TOPIC_SCHED, 1);
  mqtt.subscribe(TOPIC_CMD, 1);  // the last one: it tells the service that the device is ready
  lastTelemetry = millis() - TELEMETRY_EVERY_MS;
}

static void sendTelemetry() {
  if (!announced || millis() - lastTelemetry < TELEMETRY_EVERY_MS) return;
  lastTelemetry = millis();
  char text[160];
  // Add your sensors here: numbers, true, false or "text".
  snprintf(text, sizeof text, "{%s\"m\":{\"rssi\":%d,\"uptime\":%lu}}", stamp(), (int)WiFi.RSSI(), (unsigned long)(millis() / 1000));
  mqtt.publish(TOPIC_TELEMETRY, text);
}

// A press is over at once, so one that the network loses is lost, and nothing is retained. What it toggles, it toggles at any rate.
static void runButtons() {
  for (int i = 0; i < BUTTON_COUNT; i++) {
    const char* press = pressOf(buttons[i], digitalRead(BUTTON_PINS[i].pin) == LOW, millis());
    if (press == NULL) continue;
    char text[48];
    snprintf(text, sizeof text, "{\"ch\":%d,\"action\":\"%s\"}", RELAY_COUNT + i + 1, press);
    if (announced) mqtt.publish(TOPIC_STATE, text);
    Relay* relay = findRelay(BUTTON_PINS[i].toggles);
    if (relay == NULL || strcmp(press, "SINGLE") != 0) continue;
    setRelay(*relay, !relay->on, "button", "");
    if (announced) reportState(*relay);
  }
}

void setup() {
  for (int i = 0; i < RELAY_COUNT; i++) {
    switchPin(RELAY_PINS[i].pin, false);  // off until somebody says on; before pinMode, so that it does not click
    pinMode(RELAY_PINS[i].pin, OUTPUT);
    setRelay(relays[i], false, "boot", "");
  }
  for (int i = 0; i < BUTTON_COUNT; i++) pinMode(BUTTON_PINS[i].pin, INPUT_PULLUP);
  Serial.begin(115200);
  WiFi.mode(WIFI_STA);
  WiFi.setAutoReconnect(true);
  WiFi.begin(WIFI_NAME, WIFI_PASSWORD);
#if USE_TLS
#ifdef ESP8266
  configTime(0, 0, NTP_SERVER);
  network.setTrustAnchors(&authority);
#else
  network.setCACert(CA_PEM);
#endif
#endif
  mqtt.setBufferSize(BUFFER_SIZE);
  mqtt.setKeepAlive(KEEPALIVE_S);
  mqtt.setSocketTimeout(SOCKET_TIMEOUT_S);
  mqtt.setCallback(onMessage);
}

void loop() {
  runClock();
  runPlan();
  runButtons();
  if (!mqtt.loop()) {
    if (connected) onLostConnection();
    tryToConnect();
    return;
  }
  announce();
  sendTelemetry();
  if (millis() - lastTime >= TIME_EVERY_MS) askTime();
}
