import { parentPort } from 'node:worker_threads'
import { runScripted } from '../../../src/testing/index.ts'
import { startTelemetry } from '../../../src/telemetry/index.ts'
import { answer, household } from './parent-and-child-environment.ts'

// As a worker does it: counts on its own thread and sends what it counted, in pieces.
await using telemetry = startTelemetry({ env: {}, run: 'r', worker: '0', metrics: true })
for (let round = 0; round < 2; round += 1) {
  await runScripted({ environment: household, script: ({ messages }) => answer(messages) })
  parentPort?.postMessage(telemetry.takeDelta())
}
parentPort?.postMessage(telemetry.takeDelta())
