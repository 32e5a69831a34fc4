import { MillraceError } from '../../errors/index.ts'
import type { Transport } from './tool-source.ts'

export type StepName = 'config' | 'command' | 'start' | 'initialise' | 'list'

/** One thing that was tried, and how it went. */
export interface Step {
  readonly step: StepName
  readonly ok: boolean
  readonly ms: number
  readonly shown: string
}

export interface ToolCounts {
  readonly count: number
  readonly readOnly: number
  readonly idempotent: number
}

/** What the doctor found out about one server. */
export interface Examination {
  readonly server: string
  readonly isRequired: boolean
  readonly transport: Transport
  readonly steps: readonly Step[]
  readonly exitCode?: number
  /** The end of what it wrote to stderr. */
  readonly stderr?: string
  readonly tools?: ToolCounts
  readonly memoryBytes?: number
  /** How rollouts will share it, and what that costs. */
  readonly sharing?: string
  /** What to do about what is wrong, or could be better. */
  readonly hints: readonly string[]
}

/** Whether it went all the way. */
export function isHealthy({ steps }: Examination): boolean {
  return steps.every(({ ok }) => ok)
}

/** The steps of one examination, in their order, with the time of each. */
export class Steps {
  readonly taken: Step[] = []

  /** Notes how the step went. What failed is thrown on: no later step can be tried. */
  async take<T>(step: StepName, work: () => T | Promise<T>, shown: (result: T) => string): Promise<T> {
    const startedAt = performance.now()
    try {
      const result = await work()
      this.taken.push({ step, ok: true, ms: performance.now() - startedAt, shown: shown(result) })
      return result
    } catch (error) {
      const { rawMessage } = MillraceError.from(error, 'tool_infra')
      this.taken.push({ step, ok: false, ms: performance.now() - startedAt, shown: rawMessage })
      throw error
    }
  }
}
