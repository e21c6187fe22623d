"""What stock firmware publishes, by its public documentation: Tasmota 15 and 16, Shelly's Gen2 to Gen4 components, ESPHome 2026. One
message of each kind, with made-up values; topics are below the device's prefix."""

from __future__ import annotations

TASMOTA: dict[str, tuple[str, str]] = {
    "last will": ("tele/LWT", "Online"),
    "boot 1": (
        "tele/INFO1",
        '{"Info1":{"Module":"Generic","Version":"15.1.0(release-tasmota)","FallbackTopic":"cmnd/DVES_12AB34_fb/","GroupTopic":"cmnd/tasmotas/"}}',
    ),
    "boot 2": (
        "tele/INFO2",
        '{"Info2":{"WebServerMode":"Admin","Hostname":"tasmota-12AB34-2868","IPAddress":"192.168.2.20","IP6Global":"","IP6Local":"fe80::1"}}',
    ),
    "boot 3": ("tele/INFO3", '{"Info3":{"RestartReason":"Software/System restart","BootCount":42}}'),
    "relay": ("stat/POWER", "ON"),
    "relay of several": ("stat/POWER1", "OFF"),
    "second relay": ("stat/POWER2", "ON"),
    "eighth relay, StateText in small letters": ("stat/POWER8", "off"),
    "relay, StateText in another case": ("stat/POWER", "On"),
    "relay, StateText as a number": ("stat/RESULT", '{"POWER1":"1"}'),
    "relay, StateText of one's own": ("stat/RESULT", '{"POWER1":"Licht an"}'),
    "second relay, StateText of one's own": ("stat/RESULT", '{"POWER2":"offen"}'),
    "state": (
        "tele/STATE",
        '{"Time":"2026-03-02T06:00:00","Uptime":"2T01:10:07","UptimeSec":177007,"Heap":26,"SleepMode":"Dynamic","Sleep":50,"LoadAvg":19,'
        '"MqttCount":1,"Berry":{"HeapUsed":5,"Objects":54},"POWER1":"ON","POWER2":"OFF","Wifi":{"AP":1,"SSId":"home","BSSId":"AA:BB:CC:00:11:22",'
        '"Channel":6,"Mode":"HT20","RSSI":72,"Signal":-64,"LinkCount":2,"Downtime":"0T00:00:07"},"Hostname":"tasmota","IPAddress":"192.168.2.20"}',
    ),
    "light": (
        "stat/RESULT",
        '{"POWER":"ON","Dimmer":60,"Color":"FF8800","HSBColor":"32,100,60","White":0,"CT":327,"Channel":[60,32,0],"Scheme":0,"Fade":"OFF","Speed":1,"LedTable":"ON"}',
    ),
    "light, SetOption4": ("stat/DIMMER", '{"Dimmer":60}'),
    "button, SetOption73": ("stat/RESULT", '{"Button1":{"Action":"DOUBLE"}}'),
    "switch, SetOption114": ("stat/RESULT", '{"Switch2":{"Action":"TOGGLE"}}'),
    "RF": ("tele/RESULT", '{"RfReceived":{"Sync":13020,"Low":420,"High":1220,"Data":"0xE5CC88","RfKey":"None"}}'),
    "RF receiver": (
        "tele/RESULT",
        '{"Time":"2026-03-02T06:00:00","RfReceived":{"Data":"0x7028D4","Bits":24,"Protocol":1,"Pulse":454}}',
    ),
    "infrared": (
        "tele/RESULT",
        '{"IrReceived":{"Protocol":"NEC","Bits":32,"Data":"0x00FF6897","DataLSB":"0x00FF16E9","Repeat":0}}',
    ),
    "shutter": ("stat/RESULT", '{"Shutter1":{"Position":45,"Direction":-1,"Target":0,"Tilt":0}}'),
    "fan": ("stat/RESULT", '{"FanSpeed":2}'),
    "sensors": (
        "tele/SENSOR",
        '{"Time":"2026-03-02T06:00:00","DS18B20-1":{"Id":"01131B123456","Temperature":21.5},"BME280":{"Temperature":20.1,"Humidity":48.2,'
        '"DewPoint":9.1,"Pressure":1013.4},"ANALOG":{"A0":512},"Switch1":"ON","COUNTER":{"C1":17},"TempUnit":"C","PressureUnit":"hPa"}',
    ),
    "energy": (
        "tele/SENSOR",
        '{"Time":"2026-03-02T06:00:00","ENERGY":{"TotalStartTime":"2025-01-01T00:00:00","Total":11.911,"Yesterday":0.405,"Today":0.102,'
        '"Period":1,"Power":18,"ApparentPower":21,"ReactivePower":11,"Factor":0.86,"Voltage":231,"Current":0.091}}',
    ),
    "energy of three phases": (
        "tele/SENSOR",
        '{"ENERGY":{"Total":[3.7,0.1,2.2],"Power":[12,0,7],"Current":[0.052,0.0,0.03],"Voltage":[231,230,232],"Frequency":50}}',
    ),
    "a sensor without a value": ("tele/SENSOR", '{"DHT11":{"Temperature":null,"Humidity":null,"DewPoint":null},"TempUnit":"C"}'),
    "Zigbee": (
        "tele/SENSOR",
        '{"ZbReceived":{"0x099F":{"Device":"0x099F","Name":"Window","Temperature":22.32,"Contact":1,"Endpoint":1,"LinkQuality":149}}}',
    ),
    "status of sensors": (
        "stat/STATUS10",
        '{"StatusSNS":{"Time":"2026-03-02T06:00:00","DS18B20":{"Id":"A","Temperature":21.5},"TempUnit":"C"}}',
    ),
    "status of the state": (
        "stat/STATUS11",
        '{"StatusSTS":{"Time":"2026-03-02T06:00:00","UptimeSec":10,"POWER":"OFF","Dimmer":10}}',
    ),
    "status of the network": (
        "stat/STATUS5",
        '{"StatusNET":{"Hostname":"tasmota","IPAddress":"192.168.2.20","Gateway":"192.168.2.1","Mac":"AA:BB"}}',
    ),
    "status": (
        "stat/STATUS",
        '{"Status":{"Module":0,"DeviceName":"Tasmota","FriendlyName":["Tasmota"],"Power":"1","PowerOnState":3}}',
    ),
    "upgrade": ("stat/UPGRADE", '{"Upgrade":"Successful. Restarting"}'),
    "a setting": ("stat/RESULT", '{"TelePeriod":60}'),
    "unknown command": ("stat/RESULT", '{"Command":"Unknown","Input":"DIMER"}'),
    "error": ("stat/RESULT", '{"Command":"Error"}'),
    "blink": ("stat/RESULT", '{"POWER2":"Blink On"}'),
    "rule": ("stat/WATER", "12.5"),
    "rule that publishes a word": ("stat/MODE", "eco"),
    "log": ("stat/LOGGING", "06:00:00.123 MQT: stat/POWER = ON"),
    "plan, a timer": (
        "stat/RESULT",
        '{"Timer1":{"Enable":1,"Mode":0,"Time":"06:30","Window":0,"Days":"0100000","Repeat":0,"Output":1,"Action":1}}',
    ),
    "plan, the zone": ("stat/RESULT", '{"Timezone":"+00:00"}'),
    "plan, the switch": ("stat/RESULT", '{"Timers":"ON"}'),
    "plan, held": ("stat/PLAN", "7"),
    "a timer of one's own": ("stat/RESULT", '{"Timer16":{"Enable":1,"Time":"06:30"}}'),
    "a long text": ("stat/RESULT", '{"Rule1":{"State":"ON","Rules":"' + "x" * 300 + '"}}'),
    "a topic of nobody": ("other/thing", "1"),
}

_SWITCH = (
    '{"id":%d,"source":"MQTT","output":true,"apower":18.4,"voltage":231.2,"current":0.08,"pf":0.99,"freq":50.0,'
    '"aenergy":{"total":1184.2,"by_minute":[0.0,12.1,3.2],"minute_ts":1772431200},"ret_aenergy":{"total":0.0,"by_minute":[0.0,0.0,0.0],'
    '"minute_ts":1772431200},"temperature":{"tC":41.3,"tF":106.3},"timer_started_at":1772431200.0,"timer_duration":60,"errors":["overtemp"]}'
)

SHELLY: dict[str, tuple[str, str]] = {
    "online": ("online", "true"),
    "switch": ("status/switch:0", _SWITCH % 0),
    "fourth switch": ("status/switch:3", _SWITCH % 3),
    "three phases": (
        "status/em:0",
        '{"id":0,"a_current":4.029,"a_voltage":236.1,"a_act_power":951.2,"a_aprt_power":951.9,"a_pf":1.0,"a_freq":50.0,"a_errors":["power_meter_failure"],'
        '"b_current":4.027,"n_current":null,"total_current":11.083,"total_act_power":2484.782,"total_aprt_power":2486.7,"user_calibrated_phase":[]}',
    ),
    "three phases, energy": (
        "status/emdata:0",
        '{"id":0,"a_total_act_energy":1.1,"a_total_act_ret_energy":0.0,"total_act":3.3,"total_act_ret":0.0}',
    ),
    "phases apart": (
        "status/em1:2",
        '{"id":2,"current":1.2,"voltage":230.5,"act_power":210.0,"aprt_power":215.0,"pf":0.98,"freq":50.0,"calibration":"factory"}',
    ),
    "meter": (
        "status/pm1:0",
        '{"id":0,"voltage":230.1,"current":0.5,"apower":110.2,"freq":50,"aenergy":{"total":5.0,"by_minute":[1.0],"minute_ts":1}}',
    ),
    "temperature": ("status/temperature:100", '{"id":100,"tC":23.8,"tF":74.9}'),
    "temperature that failed": ("status/temperature:0", '{"id":0,"tC":null,"tF":null,"errors":["read"]}'),
    "humidity": ("status/humidity:0", '{"id":0,"rh":55.1}'),
    "battery": ("status/devicepower:0", '{"id":0,"battery":{"V":5.26,"percent":96},"external":{"present":false}}'),
    "smoke": ("status/smoke:0", '{"id":0,"alarm":true,"mute":false}'),
    "flood": ("status/flood:0", '{"id":0,"alarm":true,"mute":false}'),
    "input": ("status/input:1", '{"id":1,"state":true}'),
    "analogue input": ("status/input:100", '{"id":100,"percent":42.0,"xpercent":8.4}'),
    "counter": (
        "status/input:2",
        '{"id":2,"counts":{"total":20,"xtotal":2.0,"by_minute":[1,2,3],"xby_minute":[0.1,0.2,0.3],"minute_ts":1},"freq":0.5}',
    ),
    "button": ("status/input:0", '{"id":0,"state":null}'),
    "cover": (
        "status/cover:0",
        '{"id":0,"source":"limit_switch","state":"open","apower":0.0,"voltage":233.3,"current":0,"pf":0,"freq":50,"aenergy":{"total":62.1,'
        '"by_minute":[0.0],"minute_ts":1},"temperature":{"tC":40.1,"tF":104.2},"pos_control":true,"last_direction":"open","current_pos":100,"target_pos":null}',
    ),
    "light": ("status/light:1", '{"id":1,"source":"MQTT","output":true,"brightness":60.0,"temperature":{"tC":31.0,"tF":87.8}}'),
    "white": ("status/cct:0", '{"id":0,"source":"init","output":false,"brightness":55,"ct":3200}'),
    "colour": ("status/rgb:0", '{"id":0,"source":"init","output":true,"rgb":[255,128,0],"brightness":50}'),
    "colour and white": ("status/rgbw:0", '{"id":0,"source":"init","output":true,"rgb":[255,128,0],"white":120,"brightness":50}'),
    "voltmeter": ("status/voltmeter:100", '{"id":100,"voltage":4.321,"xvoltage":43.2}'),
    "illuminance": ("status/illuminance:0", '{"id":0,"lux":11,"illumination":"dark"}'),
    "thermostat": ("status/thermostat:0", '{"id":0,"target_C":21.0,"current_C":20.4,"output":true,"schedules":{"enable":false}}'),
    "presence": ("status/presence:200", '{"id":200,"value":true,"num_objects":2}'),
    "virtual number": ("status/number:200", '{"value":12.5,"last_update_ts":1772431200,"source":"rpc"}'),
    "virtual text": ("status/text:200", '{"value":"eco"}'),
    "virtual group": ("status/group:200", '{"value":["number:200","text:200"]}'),
    "Bluetooth sensor": ("status/bthomesensor:200", '{"id":200,"value":21.1,"last_updated_ts":1772431200}'),
    "Bluetooth device": ("status/bthomedevice:200", '{"id":200,"rssi":-60,"battery":100,"packet_id":12,"last_updated_ts":1}'),
    "script": ("status/script:1", '{"id":1,"running":true,"mem_used":412,"mem_peak":1200,"mem_free":24788}'),
    "system": (
        "status/sys",
        '{"mac":"A8032AB12345","restart_required":false,"time":"06:00","unixtime":1772431200,"last_sync_ts":1772431100,"uptime":501,"ram_size":260000,"ram_free":140000,'
        '"fs_size":458752,"fs_free":126976,"cfg_rev":14,"kvs_rev":0,"schedule_rev":1,"webhook_rev":0,"available_updates":{"stable":{"version":"1.7.1"}},"reset_reason":3}',
    ),
    "wifi": ("status/wifi", '{"sta_ip":"192.168.2.30","status":"got ip","ssid":"home","rssi":-53,"sta_ip6":["fe80::1"]}'),
    "ethernet": ("status/eth", '{"ip":null}'),
    "Bluetooth": ("status/ble", "{}"),
    "cloud": ("status/cloud", '{"connected":false}'),
    "mqtt": ("status/mqtt", '{"connected":true}'),
    "notification": (
        "events/rpc",
        '{"src":"shellyplus1pm-a8032ab12345","dst":"devices/x/events","method":"NotifyStatus","params":{"ts":1772431200.12,'
        '"switch:0":{"id":0,"output":true,"source":"button"},"em:0":{"id":0,"total_act_power":2484.7},"temperature:0":{"id":0,"tC":21.5,"tF":70.7}}}',
    ),
    "whole notification": (
        "events/rpc",
        '{"src":"s","dst":"d","method":"NotifyFullStatus","params":{"ts":1772431200.12,"ble":{},"cloud":{"connected":true},'
        '"humidity:0":{"id":0,"rh":45.2},"devicepower:0":{"id":0,"battery":{"V":3.1,"percent":80}},"sys":{"uptime":3,"wakeup_reason":{"boot":"deepsleep_wake","cause":"periodic"}}}}',
    ),
    "event": (
        "events/rpc",
        '{"src":"s","dst":"d","method":"NotifyEvent","params":{"ts":1772431200.12,"events":[{"component":"input:0","id":0,"event":"btn_down","ts":1772431200.12},'
        '{"component":"input:0","id":0,"event":"single_push","ts":1772431200.3}]}}',
    ),
    "event of the system": (
        "events/rpc",
        '{"src":"s","dst":"d","method":"NotifyEvent","params":{"ts":1.0,"events":[{"component":"sys","event":"ota_progress","msg":"Downloading","progress_percent":35,"ts":1.0}]}}',
    ),
    "event of a Bluetooth button": (
        "events/rpc",
        '{"src":"s","dst":"d","method":"NotifyEvent","params":{"ts":1.0,"events":[{"component":"bthomesensor:201","id":201,"event":"double_push","idx":1,"ts":1.0}]}}',
    ),
    "notification of another kind": ("events/rpc", '{"src":"s","dst":"d","method":"NotifyScan","params":{"devices":[]}}'),
    "log": ("debug/log", "shelly_notification:162 Status change of switch:0"),
    "first generation, relay": ("shellies/shelly1-12AB34/relay/0", "on"),
    "first generation, as a bridge would rename it": ("relay/0/power", "12.3"),
}

ESPHOME: dict[str, tuple[str, str]] = {
    "birth": ("status", "online"),
    "relay": ("switch/relay/state", "ON"),
    "answer": ("answer/relay", "exe_1 OFF"),
    "another switch": ("switch/pump_2/state", "OFF"),
    "sensor": ("sensor/room_temperature/state", "20.75"),
    "sensor, negative": ("sensor/outside/state", "-3"),
    "sensor without a value": ("sensor/room_temperature/state", "nan"),
    "sensor that overflows": ("sensor/room_temperature/state", "inf"),
    "sensor that is broken": ("sensor/room_temperature/state", "warm"),
    "binary sensor": ("binary_sensor/door/state", "ON"),
    "text sensor": ("text_sensor/firmware/state", "2026.6"),
    "light": (
        "light/lamp/state",
        '{"state":"ON","color_mode":"rgbw","brightness":204,"color":{"r":255,"g":128,"b":0,"w":10},"white":10,"color_temp":250,"effect":"None"}',
    ),
    "fan": ("fan/ceiling/state", "ON"),
    "fan, speed": ("fan/ceiling/speed_level/state", "3"),
    "fan, oscillation": ("fan/ceiling/oscillation/state", "oscillate_on"),
    "fan, direction": ("fan/ceiling/direction/state", "forward"),
    "number": ("number/target_level/state", "42.5"),
    "select": ("select/mode/state", "3"),
    "text": ("text/label/state", "Pump room"),
    "cover": ("cover/blind/state", "opening"),
    "cover, position": ("cover/blind/position/state", "55"),
    "cover, tilt": ("cover/blind/tilt/state", "20"),
    "valve": ("valve/water/state", "closed"),
    "valve, position": ("valve/water/position/state", "0"),
    "lock": ("lock/front/state", "LOCKED"),
    "climate, mode": ("climate/heating/mode/state", "heat"),
    "climate, temperature": ("climate/heating/current_temperature/state", "20.5"),
    "climate, target": ("climate/heating/target_temperature/state", "21.0"),
    "climate, target low": ("climate/heating/target_temperature_low/state", "19.0"),
    "climate, action": ("climate/heating/action/state", "idle"),
    "climate, fan": ("climate/heating/fan_mode/state", "auto"),
    "climate, swing": ("climate/heating/swing_mode/state", "off"),
    "climate, preset": ("climate/heating/preset/state", "eco"),
    "climate, humidity": ("climate/heating/current_humidity/state", "45"),
    "event": ("event/doorbell/state", '{"event_type":"double_press"}'),
    "date": ("date/holiday/state", '{"year":2026,"month":3,"day":2}'),
    "time": ("time/wake_up/state", '{"hour":6,"minute":30,"second":0}'),
    "update": (
        "update/firmware/state",
        '{"installed_version":"2026.5.0","latest_version":"2026.6.5","title":"ESPHome","in_progress":false}',
    ),
    "alarm": ("alarm_control_panel/house/state", "ARMED_AWAY"),
    "log": ("debug", "[I][app:100]: ESPHome version 2026.6.5"),
    "a topic of one's own": ("my/own/topic", "1"),
    "a name that is too long": ("sensor/" + "n" * 70 + "/state", "1"),
}
