/* A libnvidia-ml.so.1 without a GPU behind it, for tests of the real binding. Layouts and codes as NVML's header has them.
 *
 * GPU 0 answers everything, GPM too. GPU 1 is old: no samples, no engines, no GPM. GPU 2 is divided (MIG). GPU 3 is lost at its third
 * reading. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15 };
enum { WHOLE = 0, OLD = 1, DIVIDED = 2, DYING = 3, COUNT = 4 };

typedef struct { int number, power_calls, sample_calls; unsigned gpm_serial; } Device;
typedef struct { unsigned long long stamp; union { double d; unsigned u; unsigned long long ull; } value; } Sample;
typedef struct { unsigned pid; unsigned long long memory; unsigned instance, compute_instance; } Process;
typedef struct { unsigned pid; unsigned long long stamp; unsigned sm, memory, encoder, decoder; } Share;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory;
typedef struct { unsigned serial; } GpmSample;
typedef struct { unsigned id; int result; double value; const char *names[3]; } GpmMetric;
typedef struct { unsigned version, count; GpmSample *before, *after; GpmMetric metrics[]; } GpmRequest;

static Device devices[COUNT] = {{0}, {1}, {2}, {3}};
static int open_count = 0;

static int refused(Device *device) { return device->number == DYING && device->power_calls >= 3 ? LOST : OK; }

#define CHECK(device) do { int code = refused(device); if (code) return code; } while (0)
#define ONLY_WHOLE(device) do { CHECK(device); if ((device)->number == OLD || (device)->number == DIVIDED) return NOT_SUPPORTED; } while (0)

int nvmlInitWithFlags(unsigned flags) { (void)flags; open_count++; return OK; }
int nvmlShutdown(void) { open_count--; return OK; }
int stand_in_open_count(void) { return open_count; }
const char *nvmlErrorString(int code) { (void)code; return "stand-in"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { strncpy(text, "999.1", size); return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = COUNT; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) { *device = &devices[index]; return OK; }
int nvmlDeviceGetName(Device *device, char *text, unsigned size) { CHECK(device); strncpy(text, "Stand-in", size); return OK; }

int nvmlDeviceGetMigMode(Device *device, unsigned *now, unsigned *later) {
    if (device->number == OLD) return NOT_SUPPORTED;
    *now = *later = device->number == DIVIDED;
    return OK;
}

int nvmlDeviceGetUtilizationRates(Device *device, unsigned *rates) {
    CHECK(device);
    if (device->number == DIVIDED) return NOT_SUPPORTED;
    rates[0] = 37; rates[1] = 12;
    return OK;
}

/* Four samples, 50 ms apart, come with each reading: 0, 10, 20, 30 of kind 1 and half of that of kind 2. One entry is unset. */
int nvmlDeviceGetSamples(Device *device, int kind, unsigned long long since, int *type, unsigned *count, Sample *samples) {
    ONLY_WHOLE(device);
    (void)since;
    *type = 1;
    if (samples == NULL) { *count = 120; return OK; }
    if (kind == 1) device->sample_calls++;
    unsigned last = 8 + 4 * device->sample_calls, first = last > 100 ? last - 99 : 1;
    for (unsigned i = first; i <= last; i++) {
        samples[i - first + 1].stamp = 1700000000000000ull + 50000ull * i;
        samples[i - first + 1].value.u = 10 * ((i - 1) % 4) / (kind == 1 ? 1 : 2);
    }
    *count = last - first + 2;
    return OK;
}

#define ENGINE(name, percent) \
    int name(Device *device, unsigned *share, unsigned *period) { ONLY_WHOLE(device); *share = percent; *period = 167000; return OK; }
ENGINE(nvmlDeviceGetDecoderUtilization, 91)
ENGINE(nvmlDeviceGetEncoderUtilization, 0)
ENGINE(nvmlDeviceGetJpgUtilization, 5)

int nvmlDeviceGetMemoryInfo_v2(Device *device, Memory *memory) {
    CHECK(device);
    if (memory->version != 0x02000028) return INVALID;
    memory->total = 80ull << 30; memory->used = 3ull << 30; memory->reserved = 600ull << 20;
    return OK;
}

/* The binding asks for the number first, then for twice as many. */
int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, Process *processes) {
    CHECK(device);
    if (device->number == DIVIDED) return NO_PERMISSION;
    if (device->number == OLD) { *count = 0; return OK; }
    if (processes == NULL) { *count = 2; return TOO_SMALL; }
    processes[0] = (Process){.pid = 1, .memory = 2ull << 30};
    processes[1] = (Process){.pid = 2147483600u, .memory = ~0ull};
    *count = 2;
    return OK;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(Device *device, unsigned *count, Process *processes) {
    CHECK(device);
    if (device->number == DIVIDED) return NO_PERMISSION;
    (void)processes; *count = 0;
    return OK;
}

/* nvmlDeviceGetProcessesUtilizationInfo is missing on purpose: this driver is older than that function. */
int nvmlDeviceGetProcessUtilization(Device *device, Share *shares, unsigned *count, unsigned long long since) {
    ONLY_WHOLE(device);
    if (shares == NULL) { *count = 100; return TOO_SMALL; }
    memset(shares, 0, 100 * sizeof *shares);
    shares[0] = (Share){.pid = 1, .stamp = since + 1000000, .sm = 64};
    shares[1] = (Share){.pid = 7, .stamp = since + 900000, .sm = 4294967290u};
    *count = 100;
    return OK;
}

int nvmlDeviceGetClockInfo(Device *device, int kind, unsigned *mhz) { CHECK(device); *mhz = kind == 1 ? 345 : 1; return OK; }
int nvmlDeviceGetMaxClockInfo(Device *device, int kind, unsigned *mhz) { CHECK(device); *mhz = kind == 1 ? 1980 : 1; return OK; }
int nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, unsigned long long *bits) { CHECK(device); *bits = 0x1000024; return OK; }
int nvmlDeviceGetPowerUsage(Device *device, unsigned *mw) { CHECK(device); device->power_calls++; *mw = 123456; return refused(device); }
int nvmlDeviceGetEnforcedPowerLimit(Device *device, unsigned *mw) { CHECK(device); *mw = 700000; return OK; }
int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *degrees) { CHECK(device); (void)sensor; *degrees = 61; return OK; }
int nvmlDeviceGetPcieThroughput(Device *device, int counter, unsigned *kb) { CHECK(device); *kb = counter == 0 ? 11 : 22; return OK; }
int nvmlDeviceGetCurrPcieLinkGeneration(Device *device, unsigned *value) { CHECK(device); *value = 1; return OK; }
int nvmlDeviceGetMaxPcieLinkGeneration(Device *device, unsigned *value) { CHECK(device); *value = 5; return OK; }
int nvmlDeviceGetCurrPcieLinkWidth(Device *device, unsigned *value) { CHECK(device); *value = 8; return OK; }
int nvmlDeviceGetMaxPcieLinkWidth(Device *device, unsigned *value) { CHECK(device); *value = 16; return OK; }

int nvmlGpmQueryDeviceSupport(Device *device, unsigned *support) {
    CHECK(device);
    if (device->number == DIVIDED) return NOT_SUPPORTED;
    support[1] = device->number == WHOLE;
    return OK;
}

int nvmlGpmSampleAlloc(GpmSample **sample) { *sample = calloc(1, sizeof **sample); return OK; }
int nvmlGpmSampleFree(GpmSample *sample) { free(sample); return OK; }
int nvmlGpmSampleGet(Device *device, GpmSample *sample) { sample->serial = ++device->gpm_serial; return OK; }

int nvmlGpmMetricsGet(GpmRequest *request) {
    if (request->version != 1 || request->after->serial != request->before->serial + 1) return INVALID;
    for (unsigned i = 0; i < request->count; i++) {
        GpmMetric *metric = &request->metrics[i];
        metric->result = OK;
        switch (metric->id) {
            case 2: metric->value = 40.5; break;
            case 3: metric->value = 25.0; break;
            case 5: metric->result = NOT_SUPPORTED; break;
            case 10: metric->value = 55.5; break;
            case 20: metric->value = 100.0; break;
            case 21: metric->value = 2.5; break;
            default: return INVALID;
        }
    }
    return OK;
}
