import { diagnoseRun } from './diagnose-run.ts'
import { diskCheck } from './disk-check.ts'
import { diagnosisText, machineText } from './doctor-text.ts'
import { lagCheck } from './lag-check.ts'
import { machineChecks } from './machine-checks.ts'
import { exitCodes, type ExitCode } from '../process/exit-codes.ts'
import type { CommandIo } from '../process/io.ts'
import { locateRun, readRun, runReference, runsRoot, storedConfig } from '../runs/stored-run.ts'
import type { Invocation } from '../command-line/command.ts'
import type { doctorFlags } from '../commands/doctor-command.ts'

/** Carries out `millrace doctor`: from its flags to its exit code. */
export async function carryOutDoctor(
  { arguments: [name], flags }: Invocation<typeof doctorFlags>,
  io: CommandIo,
): Promise<ExitCode> {
  const root = runsRoot(flags.runs, io)
  const asJson = flags.json === true
  if (name === undefined) await showMachine(root, io, asJson)
  else await showRun({ name, root }, io, asJson)
  return exitCodes.ok
}

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
