"""A model for each key inside an engine that keeps the state itself: Spark, Flink."""
