import { MillraceError, type ErrorCode } from '../../errors/index.ts'
import type { ServerTool } from '../../tools/index.ts'
import type { Transport } from './tool-source.ts'

export type StepName = 'config' | 'command' | 'start' | 'initialise' | 'list' | 'names'

/** One thing that was tried, and how it went. */
export interface Step {
  readonly step: StepName
  readonly ok: boolean
  readonly ms: number
  readonly shown: string
  /** Of what went wrong. */
  readonly code?: ErrorCode
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

export function countTools(tools: readonly ServerTool[]): ToolCounts {
  return {
    count: tools.length,
    readOnly: tools.filter(({ isReadOnly }) => isReadOnly).length,
    idempotent: tools.filter(({ isIdempotent }) => isIdempotent).length,
  }
}

/** Where it ended, if it did not go all the way. */
export function failedStep({ steps }: Examination): Step | undefined {
  return steps.find(({ ok }) => !ok)
}

/** Whether it went all the way. */
export function isHealthy(examination: Examination): boolean {
  return failedStep(examination) === undefined
}

/** Whether what is wrong is how it is configured: no evaluation begins with that, whether or not the server is required. */
export function isMisconfigured(examination: Examination): boolean {
  return failedStep(examination)?.code === 'config_invalid'
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
      const { rawMessage, code } = MillraceError.from(error, 'tool_infra')
      this.taken.push({ step, ok: false, ms: performance.now() - startedAt, shown: rawMessage, code })
      throw error
    }
  }
}
