// A relay for Latchboard on an ESP32 or ESP8266: commands, state, telemetry, and the schedule while the network is down.
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

static const char VERSION[] = "1.0.0";
static const uint16_t BUFFER_SIZE = 1024;  // PubSubClient silently drops a message that does not fit
static const uint16_t KEEPALIVE_S = 30;
static const uint16_t SOCKET_TIMEOUT_S = 5;
static const uint32_t WAIT_FOR_TIME_MS = 5000;
static const uint32_t TIME_EVERY_MS = 3600000;
static const uint32_t LONGEST_BACKOFF_MS = 60000;
static const size_t KNOWN_RESULTS = 16;
static const size_t MAX_ROWS = 5;
static const size_t ID_SIZE = 65;

// The types are here because the Arduino IDE declares all functions before the first one.

struct Row {  // of the schedule
  int64_t onS, offS;
  bool enabled;
};

enum Outcome { OUTCOME_DONE, OUTCOME_EXPIRED, OUTCOME_UNSUPPORTED };

struct Order {
  char id[ID_SIZE], cmd[ID_SIZE];
  int64_t expiresMs;  // 0: no deadline
};

struct Result {
  char id[ID_SIZE];
  Outcome outcome;
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

// --- The relay ---

static bool relayOn = false;
static char relayBy[8] = "boot";
static char relayCommand[ID_SIZE] = "";

static void switchRelay(bool on) { digitalWrite(RELAY_PIN, on == (RELAY_ON_LEVEL == HIGH) ? HIGH : LOW); }

static void setRelay(bool on, const char* by, const char* command) {
  switchRelay(on);
  relayOn = on;
  snprintf(relayBy, sizeof relayBy, "%s", by);
  snprintf(relayCommand, sizeof relayCommand, "%s", command);
}

static void reportState() {
  char command[ID_SIZE + 8] = "";
  if (relayCommand[0]) snprintf(command, sizeof command, ",\"id\":\"%s\"", relayCommand);
  char text[192];
  snprintf(text, sizeof text, "{%s\"relay\":\"%s\",\"by\":\"%s\"%s}", stamp(), relayOn ? "ON" : "OFF", relayBy, command);
  mqtt.publish(TOPIC_STATE, text, true);
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
  return json.take('[') && json.readInteger(&slot) && json.take(',') && json.readInteger(&row->onS) && json.take(',') &&
         json.readInteger(&row->offS) && json.take(',') && json.readBoolean(&row->enabled) && json.take(']');
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

// Run the edges since the last call, in their order. What was due before the clock was known, the service decides.
static void runPlan() {
  if (!clockKnown) return;
  int64_t nowS = clockMs / 1000;
  for (;;) {
    int64_t next = INT64_MAX;
    bool on = false;
    for (size_t i = 0; i < planRows; i++) {
      for (int edge = 0; edge < 2 && plan[i].enabled; edge++) {
        int64_t dueS = edge == 0 ? plan[i].offS : plan[i].onS;
        if (dueS <= planDoneS || dueS > nowS || dueS > next) continue;
        on = dueS == next ? on || edge == 1 : edge == 1;  // one slot ends and another begins: on
        next = dueS;
      }
    }
    if (next == INT64_MAX) break;
    planDoneS = next;
    setRelay(on, "sched", "");
    reportState();  // does nothing while the network is down; the state is reported after each connect
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
  char text[sizeof planText + 192];
  const char* relay = relayOn ? "ON" : "OFF";
  if (result.outcome == OUTCOME_EXPIRED)
    snprintf(text, sizeof text, "{\"id\":\"%s\",\"status\":\"expired\"}", result.id);
  else if (result.outcome == OUTCOME_UNSUPPORTED)
    snprintf(text, sizeof text, "{\"id\":\"%s\",\"status\":\"error\",\"code\":\"UNSUPPORTED\"}", result.id);
  else if (result.hasPlan)
    snprintf(text, sizeof text, "{\"id\":\"%s\",\"status\":\"done\",\"relay\":\"%s\",\"data\":%s}", result.id, relay, planText);
  else
    snprintf(text, sizeof text, "{\"id\":\"%s\",\"status\":\"done\",\"relay\":\"%s\"}", result.id, relay);
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
  if (!json.take('{')) return false;
  do {
    if (!json.readKey(key, sizeof key)) return false;
    bool read = strcmp(key, "id") == 0    ? json.readString(order->id, ID_SIZE)
                : strcmp(key, "cmd") == 0 ? json.readString(order->cmd, ID_SIZE)
                : strcmp(key, "exp") == 0 ? json.readInteger(&order->expiresMs)
                                          : json.skipValue();
    if (!read) return false;
  } while (json.take(','));
  return json.take('}') && isPlainId(order->id) && order->cmd[0] != 0;
}

static Outcome execute(const Order& order, bool* hasPlan) {
  *hasPlan = strcmp(order.cmd, "GET_SCHEDULES") == 0;
  if (clockKnown && order.expiresMs != 0 && clockMs > order.expiresMs) return OUTCOME_EXPIRED;
  if (strcmp(order.cmd, "ON") == 0)
    setRelay(true, "cmd", order.id);
  else if (strcmp(order.cmd, "OFF") == 0)
    setRelay(false, "cmd", order.id);
  else if (strcmp(order.cmd, "TOGGLE") == 0)
    setRelay(!relayOn, "cmd", order.id);
  else if (strcmp(order.cmd, "STATUS") != 0 && !*hasPlan)
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
  result.outcome = execute(order, &result.hasPlan);
  if (strcmp(relayCommand, order.id) == 0) reportState();
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
  char topic[sizeof TOPIC_PREFIX + 8], text[80];
  mqtt.publish(TOPIC_STATUS, "online", true);
  reportState();
  topicBelow(topic, sizeof topic, "hello");
  snprintf(text, sizeof text, "{\"fw\":\"%s\",\"sched\":%ld}", VERSION, (long)planRevision);
  mqtt.publish(topic, text);
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

void setup() {
  switchRelay(false);  // off until somebody says on; before pinMode, so that it does not click
  pinMode(RELAY_PIN, OUTPUT);
  switchRelay(false);
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
  if (!mqtt.loop()) {
    if (connected) onLostConnection();
    tryToConnect();
    return;
  }
  announce();
  sendTelemetry();
  if (millis() - lastTime >= TIME_EVERY_MS) askTime();
}
