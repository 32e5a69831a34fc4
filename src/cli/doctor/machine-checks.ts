import { availableParallelism, cpus, loadavg, totalmem } from 'node:os'
import process from 'node:process'
import { formatBytes } from '../format/bytes.ts'
import { formatCount } from '../format/count.ts'
import type { Check } from './_check.ts'

/** With fewer descriptors, connections wait for each other from a few hundred concurrent rollouts on. */
const fewDescriptors = 4_096
/** The memory that a run of some thousand concurrent rollouts needs, with room for an environment. */
const littleMemory = 2e9

/** Checks the share of the machine that this process was given. It only asks the system, and measures nothing. */
export function machineChecks(): readonly Check[] {
  return [processors(), memory(), descriptors(), node()]
}

function processors(): Check {
  const usable = availableParallelism()
  const present = cpus().length
  const [load = 0] = loadavg()
  const of = usable < present ? ` of ${present}` : ''
  return {
    key: 'processors',
    name: 'processors',
    shown: `${usable}${of}, load ${load.toFixed(1)}`,
    facts: { usable, present, load },
    ...(load > usable && {
      advice: 'More is running here than there are processors: figures will be worse than they need be.',
    }),
  }
}

function memory(): Check {
  const constrained = process.constrainedMemory()
  // Without a limit the system reports 0, or a huge number.
  const total = constrained > 0 ? Math.min(constrained, totalmem()) : totalmem()
  const available = process.availableMemory()
  return {
    key: 'memory',
    name: 'memory',
    shown: `${formatBytes(total)}, ${formatBytes(available)} available`,
    facts: { totalBytes: total, availableBytes: available },
    ...(available < littleMemory && {
      advice: 'Little is left: run fewer rollouts at once (-c), or fewer workers (--workers).',
    }),
  }
}

interface UserLimits {
  readonly open_files?: { readonly soft: number | string; readonly hard: number | string }
}

function descriptors(): Check {
  // Only the process report has this limit on every system.
  const { userLimits } = process.report.getReport() as { userLimits?: UserLimits }
  const { soft, hard } = userLimits?.open_files ?? { soft: 'unknown', hard: 'unknown' }
  return {
    key: 'openFiles',
    name: 'open files',
    shown: `${shownLimit(soft)} (hard limit ${shownLimit(hard)})`,
    facts: { soft, hard },
    ...(typeof soft === 'number' &&
      soft < fewDescriptors && {
        advice:
          'Half of them are for connections to backends, and requests beyond wait: raise the hard limit (ulimit -n 65536).',
      }),
  }
}

function shownLimit(limit: number | string): string {
  return typeof limit === 'number' ? formatCount(limit) : limit
}

function node(): Check {
  const { version, platform, arch } = process
  return { key: 'node', name: 'node', shown: `${version} on ${platform} ${arch}`, facts: { version, platform, arch } }
}
