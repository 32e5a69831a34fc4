export type { EvaluateOptions, Evaluation, RunInfo, RunOptions } from './evaluation.ts'
export type { Progress, ScoreEstimate } from './progress.ts'
export type { Summary } from './summary.ts'
