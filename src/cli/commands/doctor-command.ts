import { defineCommand } from '../command-line/command.ts'
import { runsFlag } from '../command-line/common-flags.ts'
import { diagnoseRun } from '../doctor/diagnose-run.ts'
import { diskCheck } from '../doctor/disk-check.ts'
import { diagnosisText, machineText } from '../doctor/doctor-text.ts'
import { lagCheck } from '../doctor/lag-check.ts'
import { machineChecks } from '../doctor/machine-checks.ts'
import { exitCodes } from '../process/exit-codes.ts'
import type { CommandIo } from '../process/io.ts'
import { locateRun, readRun, runReference, runsRoot, storedConfig } from '../runs/stored-run.ts'

export const doctorCommand = defineCommand({
  name: 'doctor',
  description:
    'Shows what this machine offers and what will limit a run on it. Given a run, shows what held that one up: functions ' +
    'of the environment that blocked a loop, limits that moved, and failures that the policy did not cause.',
  arguments: [{ name: 'run', required: false, help: 'a run: its name, or the path of its folder' }],
  flags: {
    json: { kind: 'switch', group: 'What to show', help: 'As one JSON object.' },
    runs: runsFlag,
  },
  examples: [
    { command: 'millrace doctor', explanation: 'processors, memory, open files, disk and timers' },
    { command: 'millrace doctor nightly', explanation: 'what held up the run "nightly"' },
    { command: `millrace doctor nightly --json | jq '.blocked[].blockedBy'`, explanation: 'the functions to look at' },
  ],
  exitCodes: [
    { code: exitCodes.ok, meaning: 'shown, also where something will limit' },
    { code: exitCodes.failed, meaning: 'there is no such run, or it cannot be read' },
    { code: exitCodes.usage, meaning: 'the command line is wrong' },
  ],
  async run({ arguments: [name], flags }, io) {
    const root = runsRoot(flags.runs, io)
    const asJson = flags.json === true
    if (name === undefined) await showMachine(root, io, asJson)
    else await showRun({ name, root }, io, asJson)
    return exitCodes.ok
  },
})

function frameOf({ stdout }: CommandIo) {
  return { width: stdout.isTTY ? stdout.columns : Number.POSITIVE_INFINITY, style: stdout.style }
}

async function showMachine(root: string, io: CommandIo, asJson: boolean): Promise<void> {
  // Measured one after the other: syncing the disk at the same time would show as lag.
  const checks = [...machineChecks(), await lagCheck(), await diskCheck(root)]
  if (asJson) {
    const shown = checks.map(({ key, facts, advice }) => [key, { ...facts, ...(advice !== undefined && { advice }) }])
    void io.stdout.line(JSON.stringify(Object.fromEntries(shown)))
    return
  }
  for (const line of machineText(checks, frameOf(io))) void io.stdout.line(line)
}

async function showRun(
  { name, root }: { readonly name: string; readonly root: string },
  io: CommandIo,
  asJson: boolean,
): Promise<void> {
  const found = await locateRun(name, root, io)
  await readRun(found, io, (reader) => {
    const diagnosis = diagnoseRun(reader)
    const { environment, model } = storedConfig(found)
    if (asJson) {
      void io.stdout.line(JSON.stringify({ run: found.name, environment, model, ...diagnosis }))
      return
    }
    const show = `${io.program} show ${runReference(found.folder, io)}`
    for (const line of diagnosisText(diagnosis, { ...frameOf(io), now: Date.now(), show })) void io.stdout.line(line)
  })
}
