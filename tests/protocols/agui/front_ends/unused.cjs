// In place of packages that are imported, but not used here: providers of models, and telemetry.
exports.Analytics = class {
  track() {}
};
exports.createAnthropic = exports.createGoogleGenerativeAI = exports.createMCPClient = undefined;
exports.createOpenAI = exports.createVertex = undefined;
exports.jsonSchema = exports.stepCountIs = exports.streamText = exports.tool = undefined;
